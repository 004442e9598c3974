// Command schemas writes JSON schemas for kubeconform, one file per kind, without
// asking any server but the Go module proxy: Kubernetes' own OpenAPI
// document and the Prometheus operator's CRDs lie in their modules.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// module is where facts come from. Its sum is pinned here because no go.mod names it:
// neither can be required without replacing thirty others.
type module struct{ path, version, sum string }

var (
	kubernetes = module{"k8s.io/kubernetes", "v1.36.3", "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o="}
	operator   = module{"github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="}
)

func main() {
	out := flag.String("o", "", "directory to write to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	if out == "" {
		return errors.New("-o is missing")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	kube, err := download(kubernetes)
	if err != nil {
		return err
	}
	if err := fromOpenAPI(filepath.Join(kube, "api/openapi-spec/swagger.json"), out); err != nil {
		return err
	}
	prom, err := download(operator)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(prom, "example/prometheus-operator-crd/*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find CRDs of %s: %v", operator.path, err)
	}
	for _, f := range files {
		if err := fromCRD(f, out); err != nil {
			return fmt.Errorf("read CRD %q: %w", filepath.Base(f), err)
		}
	}
	return nil
}

// download returns the directory of the module in the module cache.
func download(m module) (dir string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Dir = os.TempDir() // in no module, so that no go.mod has a say
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w", m.path, err)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(b, &got); err != nil {
		return "", fmt.Errorf("download %s: %w", m.path, err)
	}
	if got.Sum != m.sum {
		return "", fmt.Errorf("download %s: sum is %s, want %s", m.path, got.Sum, m.sum)
	}
	return got.Dir, nil
}

type schema = map[string]any

// fromOpenAPI writes a schema for each kind of the document, with the schemas it refers to.
func fromOpenAPI(path, out string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var doc struct {
		Definitions map[string]schema `json:"definitions"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("parse %q: %w", path, err)
	}
	for name, d := range doc.Definitions {
		switch name {
		case "io.k8s.apimachinery.pkg.api.resource.Quantity":
			d["type"] = []string{"string", "number"}
		case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
			d["type"] = []string{"string", "integer"}
			delete(d, "format")
		}
	}
	for name, d := range doc.Definitions {
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // lists of options and the like are of every group
		}
		gvk, _ := kinds[0].(map[string]any)
		group, _ := gvk["group"].(string)
		version, _ := gvk["version"].(string)
		kind, _ := gvk["kind"].(string)
		resolved, ok := resolve(doc.Definitions, d, nil)
		if !ok {
			continue // refers to itself: the CRD of CRDs, which no manifest here contains
		}
		if err := write(out, group, version, kind, resolved); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// resolve replaces references by the schemas they name, and forbids unknown fields.
func resolve(all map[string]schema, v any, above []string) (any, bool) {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			var ok bool
			if list[i], ok = resolve(all, v[i], above); !ok {
				return nil, false
			}
		}
		return list, true
	case schema:
		if ref, ok := v["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/definitions/")
			for _, a := range above {
				if a == name {
					return nil, false
				}
			}
			return resolve(all, all[name], append(above[:len(above):len(above)], name))
		}
		object := schema{}
		for key, value := range v {
			if key == "description" {
				continue
			}
			var ok bool
			if object[key], ok = resolve(all, value, above); !ok {
				return nil, false
			}
		}
		strict(object)
		return object, true
	default:
		return v, true
	}
}

func strict(object schema) {
	_, isObject := object["properties"].(schema)
	_, open := object["additionalProperties"]
	if isObject && !open && object["x-kubernetes-preserve-unknown-fields"] != true {
		object["additionalProperties"] = false
	}
}

// fromCRD writes a schema for each version of a custom resource.
func fromCRD(path, out string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd struct {
		Spec struct {
			Group    string                `json:"group"`
			Names    struct{ Kind string } `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(b, &crd); err != nil {
		return err
	}
	for _, v := range crd.Spec.Versions {
		s := v.Schema.OpenAPIV3Schema
		if properties, ok := s["properties"].(schema); ok {
			properties["metadata"] = schema{"type": "object"}
		}
		intOrString(s)
		resolved, _ := resolve(nil, s, nil)
		if err := write(out, crd.Spec.Group, v.Name, crd.Spec.Names.Kind, resolved); err != nil {
			return err
		}
	}
	return nil
}

// intOrString makes of the extension what a JSON schema understands.
func intOrString(v any) {
	switch v := v.(type) {
	case []any:
		for i := range v {
			intOrString(v[i])
		}
	case schema:
		if v["x-kubernetes-int-or-string"] == true {
			v["type"] = []string{"string", "integer"}
			delete(v, "anyOf")
		}
		for _, value := range v {
			intOrString(value)
		}
	}
}

// write names the file as kubeconform looks for it when it is told
// {{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json. It takes the version of the
// core group for the group's name.
func write(out, group, version, kind string, s any) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	name := kind + "-" + cmp.Or(group, version) + "-" + version + ".json"
	return os.WriteFile(filepath.Join(out, strings.ToLower(name)), b, 0o644)
}
