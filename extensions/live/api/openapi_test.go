package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
)

// document has the parts of openapi.json that the tests read.
type document struct {
	OpenAPI string
	Paths   map[string]struct {
		Get struct {
			Parameters []struct {
				Name, In string
			}
			Responses map[string]struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Properties           map[string]json.RawMessage
	Required             []string
	AdditionalProperties bool
}

var documented = sync.OnceValue(func() *document {
	var d document
	if err := json.Unmarshal(openAPI, &d); err != nil {
		panic(err)
	}
	return &d
})

// compiler compiles schemas of openapi.json, once each. It is not safe for concurrent use.
var compiler = sync.OnceValue(func() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err = errors.Join(err, c.AddResource("openapi.json", doc)); err != nil {
		panic(err)
	}
	return c
})

var compiling sync.Mutex

// checkJSON checks JSON against the schema at a pointer in openapi.json.
func checkJSON(t testing.TB, what, pointer string, text io.Reader) {
	t.Helper()
	compiling.Lock()
	s, err := compiler().Compile("openapi.json#" + pointer)
	compiling.Unlock()
	if err != nil {
		t.Errorf("%s: openapi.json does not have it: %v", what, err)
		return
	}
	value, err := jsonschema.UnmarshalJSON(text)
	if err == nil {
		err = s.Validate(value)
	}
	testkit.ErrorIf(t, err != nil, "%s does not fit openapi.json: %v", what, err)
}

// checkAnswer checks an answer against openapi.json.
func checkAnswer(t testing.TB, a *API, r *http.Request, got *httptest.ResponseRecorder) {
	t.Helper()
	media := got.Header().Get("Content-Type")
	if !slices.Contains(a.Paths(), r.Pattern) || r.Method == http.MethodHead || media == "application/zstd" {
		return // the path is unknown or changed by a redirect, or there is no JSON
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	pointer := "/paths/" + escape(r.Pattern) + "/get/responses/" + strconv.Itoa(got.Code) + "/content/" + escape(media) + "/schema"
	checkJSON(t, r.URL.String(), pointer, got.Body)
}

func TestAnswersFitTheDescription(t *testing.T) {
	w := eventful(t)
	a := New(w.options)
	id := w.gpus[0].Devices[0].ID
	answered := map[string]bool{}
	f := func(target string, code int) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, Prefix+target, nil)
		got := send(t, a, r)
		testkit.Equal(t, "status of "+target+", which answers "+got.Body.String(), code, got.Code)
		checkAnswer(t, a, r, got)
		if code == http.StatusOK {
			answered[r.Pattern] = true
		}
	}
	f("devices", 200)
	f("fields", 200)
	f("health", 200)
	f("list", 200)
	f("events?since=1h", 200)
	f("samples?device="+id+"&field=DCGM_FI_DEV_GPU_TEMP", 200)
	f("samples?device="+id+"&field=DCGM_FI_DEV_GPU_TEMP&points=10&since=1h", 200)
	f("recordings", 200)
	f("recordings/"+recorded, 200)
	f("openapi.json", 200)
	f("stream?x=y", 400)
	f("fields?device=x", 404)
	w.gpus[0].Ring.Append(1, make([]int64, len(w.gpus[0].Devices)), make([]float64, len(w.gpus[0].Columns))) // never sampled
	f("fields", 200)
	w.states = nil
	f("devices", 200)
	f("health", 200)
	for _, path := range a.Paths() {
		testkit.ErrorIf(t, !answered[path] && path != Prefix+"stream", "%s was not checked", path) // TestStream checks stream events
	}
}

// TestTheDescriptionHasWhatIsServed compares paths and parameters in openapi.json with the handlers.
func TestTheDescriptionHasWhatIsServed(t *testing.T) {
	a := New(newWorld(t, 1, 0).options)
	d := documented()
	testkit.Equal(t, "paths", slices.Sorted(slices.Values(a.Paths())), slices.Sorted(maps.Keys(d.Paths)))
	for path, p := range d.Paths {
		var parameters []string
		for _, x := range p.Get.Parameters {
			if x.In == "query" {
				parameters = append(parameters, x.Name)
			}
		}
		want := "takes none"
		if len(parameters) > 0 {
			want = "takes " + strings.Join(parameters, ", ")
		}
		got := detailOf(t, get(t, a, strings.Replace(path, "{name}", "x", 1)+"?no-such=1"))
		testkit.ErrorIf(t, !strings.HasSuffix(got, want), "%s has the parameters %q, its handler says %q", path, parameters, got)
	}
}

// TestTheDescriptionHasTheTypes compares the schemas with the types of package apiv1.
func TestTheDescriptionHasTheTypes(t *testing.T) {
	types := map[string]reflect.Type{}
	var collect func(reflect.Type)
	collect = func(x reflect.Type) {
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice:
			collect(x.Elem())
		case reflect.Struct:
			if x == reflect.TypeFor[time.Time]() || types[x.Name()] != nil {
				return
			}
			types[x.Name()] = x
			for i := range x.NumField() {
				collect(x.Field(i).Type)
			}
		}
	}
	for _, v := range []any{apiv1.Devices{}, apiv1.Fields{}, apiv1.Samples{}, apiv1.Events{}, apiv1.Health{}, apiv1.List{}, apiv1.StreamColumns{}, apiv1.StreamRows{}, apiv1.Recordings{}, apiv1.Problem{}} {
		collect(reflect.TypeOf(v))
	}
	all := documented().Components.Schemas
	testkit.Equal(t, "schemas and types", slices.Sorted(maps.Keys(types)), slices.Sorted(maps.Keys(all)))
	for name, x := range types {
		var properties, required []string
		for i := range x.NumField() {
			key, options, _ := strings.Cut(x.Field(i).Tag.Get("json"), ",")
			properties = append(properties, key)
			if options == "" {
				required = append(required, key)
			}
		}
		s := all[name]
		testkit.Equal(t, "properties of the schema "+name+" and of the type", slices.Sorted(slices.Values(properties)), slices.Sorted(maps.Keys(s.Properties)))
		testkit.Equal(t, "what the schema "+name+" requires, the type always has", slices.Sorted(slices.Values(required)), slices.Sorted(slices.Values(s.Required)))
		testkit.Equal(t, "the schema "+name+" allows anything", false, s.AdditionalProperties)
	}
}
