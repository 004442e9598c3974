package helm_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestFleet: the server is what Pod Security calls restricted, has its files as directories,
// and the program takes its flags and the files of the example.
func TestFleet(t *testing.T) {
	o := render(t, "fleet", `fleet.arguments=["--log-level=debug"]`)
	text, err := json.Marshal(o.others["Deployment"][0])
	if err != nil {
		t.Fatal(err)
	}
	spec := into[appsv1.Deployment](t, string(text)).Spec.Template.Spec
	c := &spec.Containers[0]
	if h := hosts(spec, c); h != nil {
		t.Errorf("it has %q of the host", h)
	}
	sc := c.SecurityContext
	if *spec.AutomountServiceAccountToken || !*spec.SecurityContext.RunAsNonRoot || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem ||
		!slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("it may do more than it needs: %+v, %+v", spec.SecurityContext, sc)
	}
	checkMounts(t, spec, c)

	dir := t.TempDir()
	for name, text := range o.configMaps["gpu-warpgauge-fleet"].Data {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := fleetProgram(t)
	if out, err := exec.Command(program, "check", dir).CombinedOutput(); err != nil {
		t.Errorf("warpgauge-fleet check: %v\n%s", err, out)
	}
	// With a directory for a token file it ends after it has read its flags.
	for i, a := range c.Args {
		if strings.HasPrefix(a, "--token-file=") {
			c.Args[i] = "--token-file=" + dir
		}
	}
	out, err := exec.Command(program, c.Args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "token-file") || strings.Contains(string(out), "flag provided but not defined") {
		t.Errorf("warpgauge-fleet %q: %v\n%s", c.Args, err, out)
	}
}

func fleetProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "warpgauge-fleet")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/warpgauge-fleet").CombinedOutput(); err != nil {
		t.Fatalf("build warpgauge-fleet: %v\n%s", err, out)
	}
	return path
}
