package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/kube/kubetest/apitest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func podOptions(*apiServer) APIOptions {
	return APIOptions{Node: "node-1", Pods: true, KeepLabel: func(name string) bool { return name == "app" }}
}

func sliceOptions(*apiServer) APIOptions { return APIOptions{Node: "node-1", Slices: true} }

// in runs f in a bubble with an API server, and checks at the end that Run returns at once.
func in(t *testing.T, options func(*apiServer) APIOptions, f func(t *testing.T, s *apiServer, c *running)) {
	t.Helper()
	inWith(t, options, (*apiServer).Config, f)
}

// inWith is in with another configuration.
func inWith(t *testing.T, options func(*apiServer) APIOptions, config func(*apiServer) (*rest.Config, error), f func(t *testing.T, s *apiServer, c *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Pipe(t, "node-1")
		api, logs := newAPI(options(s), func() (*rest.Config, error) { return config(s) })
		c := startAPI(t, api, logs)
		synctest.Wait()
		f(t, s, c)
		c.said()
		began := time.Now()
		c.stop()
		<-c.ended
		if took := time.Since(began); took != 0 {
			t.Errorf("Run ended %v after its context", took)
		}
		if said := c.said(); len(said) > 0 {
			t.Errorf("the end is reported as %q", said)
		}
	})
}

func TestPodsComeAndGo(t *testing.T) {
	in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
		first := c.Snapshot()
		if first.Version != 1 || first.PodsTime.IsZero() || len(first.Pods) != 0 {
			t.Errorf("an empty node is %+v, want version 1 with a time", first)
		}
		s.Pods(podObject("ml", "train-0", "uid-1", object{"app": "train", "secret": "x"}))
		static := podObject("kube-system", "proxy-node-1", "uid-2", nil)
		static["metadata"].(object)["annotations"] = object{"kubernetes.io/config.mirror": "hash-2"}
		s.Pods(static)
		synctest.Wait()
		got := c.Snapshot()
		if diff := cmp.Diff(map[PodName]PodMeta{
			{"ml", "train-0"}:               {UID: "uid-1", Labels: map[string]string{"app": "train"}},
			{"kube-system", "proxy-node-1"}: {UID: "uid-2"},
		}, got.Pods); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]PodName{
			"uid-1": {"ml", "train-0"}, "uid-2": {"kube-system", "proxy-node-1"}, "hash-2": {"kube-system", "proxy-node-1"},
		}, got.ByUID); diff != "" {
			t.Errorf("by uid (-want +got):\n%s", diff)
		}
		if len(first.Pods) != 0 {
			t.Error("a Snapshot changed after it was published")
		}

		// An event without a change of what is kept confirms, and so do bookmarks, about once a minute.
		time.Sleep(time.Second)
		s.Pods(podObject("ml", "train-0", "uid-1", object{"app": "train", "secret": "y"}))
		synctest.Wait()
		if again := c.Snapshot(); again.Version != got.Version || !again.PodsTime.After(got.PodsTime) {
			t.Errorf("version %d at %v, then %d at %v: want the same version, confirmed", got.Version, got.PodsTime, again.Version, again.PodsTime)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if now := c.Snapshot(); now.Version != got.Version || time.Since(now.PodsTime) > 2*time.Minute {
			t.Errorf("after an hour: version %d confirmed %v ago, want %d", now.Version, time.Since(now.PodsTime), got.Version)
		}

		// The server has forgotten the last version, which is not a failure. The same name again is another pod.
		s.Slices(sliceObject("a", nvidiaDriver, "node-1", 1, 1)) // the version grows without an event
		s.Compact()
		time.Sleep(30 * time.Minute)
		s.RemovePod(podObject("ml", "train-0", "uid-1", nil))
		s.Pods(podObject("ml", "train-0", "uid-3", nil))
		s.RemovePod(static)
		synctest.Wait()
		if diff := cmp.Diff(map[PodName]PodMeta{{"ml", "train-0"}: {UID: "uid-3"}}, c.Snapshot().Pods); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		if got := c.said(); !slices.Equal(got, []string{"mapping works"}) {
			t.Errorf("said %q", got)
		}
	})
}

// An answer that refuses, by verb; the message must say what to do.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name    string
		options func(*apiServer) APIOptions
		code    int
		reason  string
		on      string // prefix of the requests that are refused
		want    string
		says    string
	}{
		{"list forbidden", podOptions, 403, "Forbidden", "/api/v1/pods", ReasonForbidden, `grant the verbs list and watch on resource "pods" in apiGroup "" to this service account`},
		{"watch forbidden", podOptions, 403, "Forbidden", "watch /api/v1/pods", ReasonForbidden, `watch pods: grant the verbs list and watch on resource "pods" in apiGroup ""`},
		{"slices forbidden", sliceOptions, 403, "Forbidden", "/apis/resource.k8s.io/v1/", ReasonForbidden, `grant the verbs list and watch on resource "resourceslices" in apiGroup "resource.k8s.io"`},
		{"all of the group forbidden", sliceOptions, 403, "Forbidden", "/apis/resource.k8s.io", ReasonForbidden, `grant the verbs list and watch on resource "resourceslices"`},
		{"no longer who we were", podOptions, 401, "Unauthorized", "/", ReasonUnauthorized, "does not accept the token"},
		{"gateway", podOptions, 502, "", "/", ReasonUnreachable, " pods: "},
		{"server error", podOptions, 500, "InternalError", "/", ReasonUnreachable, " pods: "},
		{"too many requests", podOptions, 429, "TooManyRequests", "/", ReasonUnreachable, " pods: "},
		{"no pods here", podOptions, 404, "NotFound", "/", ReasonNotServed, `does not serve it in apiGroup ""`},
		{"no slices here", sliceOptions, 404, "NotFound", "/", ReasonNotServed, `does not serve it in apiGroup "resource.k8s.io"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, test.options, func(t *testing.T, s *apiServer, c *running) {
				s.Pods(podObject("ml", "train-0", "uid-1", nil))
				s.Slices(sliceObject("a", nvidiaDriver, "node-1", 1, 1, gpuObject("gpu-0", "GPU-1")))
				synctest.Wait()
				good := c.Snapshot()
				s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
					what := r.URL.Path
					if r.URL.Query().Get("watch") != "" {
						what = "watch " + what
					}
					if !strings.HasPrefix(what, test.on) && !strings.HasPrefix(r.URL.Path, test.on) {
						return false
					}
					apitest.Refuse(w, test.code, test.reason, "no")
					return true
				})
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				if got := c.health.State().Failing; got != test.want {
					t.Fatalf("failing for %q, want %q; said %q", got, test.want, c.lastError())
				}
				warnings := c.logs.FilterMessageSnippet("mapping failed").All()
				if len(warnings) != 1 {
					t.Errorf("told %d times, want once", len(warnings))
				}
				if text := c.lastError(); !strings.Contains(text, test.says) {
					t.Errorf("said %q, want %q in it", text, test.says)
				}
				if now := c.Snapshot(); now.Version != good.Version || !cmp.Equal(now.Pods, good.Pods) || !cmp.Equal(now.Slices, good.Slices) {
					t.Errorf("the last good Snapshot is gone: %+v", now)
				}
				if n := len(s.Asked()); n > 150 {
					t.Errorf("%d requests in half an hour", n)
				}

				s.AnswerFirst(nil)
				time.Sleep(longDelay * 2)
				synctest.Wait()
				if got := c.health.State().Failing; got != "" {
					t.Errorf("still failing for %q", got)
				}
				if said := c.said(); !slices.Contains(said, "mapping works again") {
					t.Errorf("said %q", said)
				}
			})
		})
	}
}

// Each kind of silence must end by itself.
func TestSilence(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	watches := func(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }
	for name, test := range map[string]struct {
		pods   int
		answer func(w http.ResponseWriter, r *http.Request) bool
	}{
		"no answer to a list": {0, hang},
		"half an answer to a list": {0, func(w http.ResponseWriter, r *http.Request) bool {
			if watches(r) {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVer`)
			w.(http.Flusher).Flush()
			return hang(w, r)
		}},
		"no headers of a watch": {1, func(w http.ResponseWriter, r *http.Request) bool { return watches(r) && hang(w, r) }},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
				time.Sleep(time.Minute)
				s.AnswerFirst(test.answer)
				s.SetDown(true) // the connections that are open
				s.SetDown(false)
				s.Pods(podObject("ml", "train-0", "uid-1", nil))
				s.Compact()
				time.Sleep(8 * time.Minute)
				synctest.Wait()
				if got := c.health.State().Failing; got != ReasonUnreachable || !strings.Contains(c.lastError(), "no answer in time") {
					t.Errorf("failing for %q: %v", got, c.health.State().Problem)
				}
				if n := len(c.Snapshot().Pods); n != test.pods {
					t.Errorf("%d pods, want %d", n, test.pods)
				}
				if n := len(s.Asked()); n < 3 || n > 50 {
					t.Errorf("%d requests in 8 minutes", n)
				}
			})
		})
	}
	t.Run("a watch that never ends", func(t *testing.T) {
		in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
			var mute atomic.Bool
			mute.Store(true)
			s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool { return mute.Load() && watches(r) && hang(w, r) })
			time.Sleep(time.Minute)
			s.Pods(podObject("ml", "train-0", "uid-1", nil))
			mute.Store(false)
			time.Sleep(maxWatch + watchSlack + 2*lastDelay)
			synctest.Wait()
			if len(c.Snapshot().Pods) != 1 {
				t.Error("the pod is not known after the longest watch")
			}
		})
	})
}

// Answers that are none must not empty what is known, are reported once, and end when the server is well.
func TestBrokenAnswers(t *testing.T) {
	const list = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{`
	for _, test := range []struct {
		name, list, watch string // bodies; empty: the list works, the watch ends at once
	}{
		{"half an event", "", `{"type":"ADDED","object":{"kind":"PartialObjectMeta`},
		{"a page", "", "<html>bad gateway</html>"},
		{"another object", "", `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x","uid":"y"}}}` + "\n"},
		{"no object", "", `{"type":"ADDED"}` + "\n"},
		{"an unknown type", "", `{"type":"RENAMED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x"}}}` + "\n"},
		{"an internal error", "", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"etcd"}}` + "\n"},
		{"no event", "", ""},
		{"no JSON", "<html>login</html>", ""},
		{"half a list", list + `"resourceVersion":"7"},"items":[{"metada`, ""},
		{"an empty object", `{}`, ""},
		{"another kind", `{"kind":"Gateway","apiVersion":"example.com/v1"}`, ""},
		{"a list without a version", list + `},"items":[]}`, ""},
		{"nameless objects", list + `"resourceVersion":"7"},"items":[{}]}`, ""},
		{"null", `null`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
				s.Pods(podObject("ml", "train-0", "uid-1", nil))
				synctest.Wait()
				s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
					body := test.watch
					if r.URL.Query().Get("watch") == "" {
						if body = test.list; body == "" {
							return false
						}
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, body)
					return true
				})
				time.Sleep(30 * time.Minute)
				s.Pods(podObject("ml", "train-1", "uid-2", nil))
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				want, told := 2, 1 // lists continue
				if test.list != "" {
					want, told = 1, 2 // the pod that was known; the end of the watch, and the list
				}
				if got := len(c.Snapshot().Pods); got != want {
					t.Errorf("%d pods, want %d", got, want)
				}
				if got := c.health.State().Failing; test.list != "" && got != ReasonMalformed && got != ReasonUnreachable {
					t.Errorf("failing for %q", got)
				}
				if n := c.logs.FilterMessageSnippet("mapping failed").Len(); n > told {
					t.Errorf("told %d times", n)
				}
				s.AnswerFirst(nil)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if got := c.health.State().Failing; got != "" || len(c.Snapshot().Pods) != 2 {
					t.Errorf("failing for %q with %d pods after it works again", got, len(c.Snapshot().Pods))
				}
			})
		})
	}
}

func TestAnAnswerWithoutEndIsNotReadWhole(t *testing.T) {
	in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
		sent := 0
		s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") != "" {
				return true
			}
			w.Header().Set("Content-Type", "application/json")
			chunk := []byte(strings.Repeat(" ", 1<<20))
			for sent = 0; sent < 10*maxAnswer; sent += len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					break
				}
			}
			return true
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := c.health.State().Failing; got != ReasonTooLarge {
			t.Errorf("failing for %q: %s", got, c.lastError())
		}
		if sent > 2*maxAnswer {
			t.Errorf("read %d bytes", sent)
		}
	})
}

// fill gives the node that many pods.
func fill(s *apiServer, pods int) {
	for i := range pods {
		s.Pods(podObject("ml", fmt.Sprint("train-", i), fmt.Sprint("uid-", i), object{"app": "x"}))
	}
}

// A list of many objects is read in pages, even from an API server that gives what it has
// in memory as a whole, if that is too large.
func TestListsComeInPages(t *testing.T) {
	for _, old := range []bool{false, true} {
		in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
			s.Old = old
			fill(s, 2*pageSize+1)
			whole := 0
			s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
				if !old || r.URL.Query().Get("resourceVersion") == "" || r.URL.Query().Get("watch") != "" {
					return false
				}
				whole++
				apitest.Reply(w, http.StatusOK, object{"x": strings.Repeat("x", maxAnswer)})
				return true
			})
			s.SetDown(true) // so that the list is read again
			time.Sleep(time.Second)
			s.SetDown(false)
			s.Asked()
			time.Sleep(2 * lastDelay)
			synctest.Wait()
			if got := len(c.Snapshot().Pods); got != 2*pageSize+1 {
				t.Errorf("old server %v: %d pods, want %d", old, got, 2*pageSize+1)
			}
			if old && whole == 0 {
				t.Error("the old server was not asked for the whole list first")
			}
			lists := slices.DeleteFunc(s.Asked(), func(r string) bool { return strings.HasPrefix(r, "watch") })
			if len(lists) < 3 {
				t.Errorf("old server %v: lists %q, want 3 pages", old, lists)
			}
		})
	}
}

// More than is read into memory costs what is new, not the process; the message says what to do.
func TestListsAreBounded(t *testing.T) {
	s, _ := newAPI(podOptions(nil), nil)
	f, pages := s.feeds[0], 0
	endless := api{list: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: fmt.Sprint(pages)}}
		for i := range o.Limit {
			list.Items = append(list.Items, *podNamed(fmt.Sprint(pages, "-", i), "u", ""))
		}
		pages++
		return list, nil
	}}
	must(t, f.target.apply(podNamed("before", "u", ""), false))
	err := f.replace(t.Context(), endless)
	if !errors.Is(err, errTooMany) || pages != maxObjects/pageSize+1 || f.target.count() != 1 || f.at != "" {
		t.Errorf("a list without an end: %v after %d pages; %d pods of version %q, want the one that was known", err, pages, f.target.count(), f.at)
	}
	f.failed(&callError{"list", err})
	if st := f.health.State(); st.Failing != ReasonTooLarge || !strings.Contains(st.Problem.Error(), "list pods") || !strings.Contains(st.Problem.Error(), "delete pods") {
		t.Errorf("state %+v", st)
	}

	slices := newMirror(s, resourceSlices{})
	many := func(yield func(runtime.Object, error) bool) {
		for i := 0; ; i++ {
			var devices []object
			for j := range 100 {
				devices = append(devices, gpuObject(fmt.Sprintf("gpu-%d-%d", i, j), "GPU-x"))
			}
			if !yield(&unstructured.Unstructured{Object: apitest.Clone(sliceObject(fmt.Sprint("s-", i), nvidiaDriver, fmt.Sprint("pool-", i), 1, 1, devices...))}, nil) {
				return
			}
		}
	}
	if err := slices.replace(many); !errors.Is(err, errTooMany) || len(slices.objects) != 0 {
		t.Errorf("slices without an end: %v, %d are kept", err, len(slices.objects))
	}
}

// podNamed is a pod of namespace ml with a label.
func podNamed(name string, uid types.UID, label string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: uid, Labels: map[string]string{"app": label}}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Labels and events of a watch are bounded, too.
func TestLabelsAndEventsAreBounded(t *testing.T) {
	s, _ := newAPI(podOptions(nil), nil)
	m := newMirror(s, pods{s.o.KeepLabel})
	for i := range maxObjects {
		m.objects[PodName{"ml", fmt.Sprint(i)}] = mirrored[podEntry]{uid: "u"}
	}
	last, long := fmt.Sprint(maxObjects), strings.Repeat("x", maxLabelText/2)
	for i, step := range []struct {
		name, label string
		deleted     bool
		want        error
	}{
		{last, "", false, errTooMany}, {"0", "", true, nil}, {last, "", false, nil},
		{"1", long, false, nil}, {"2", long, false, errTooMany}, {"1", "", false, nil}, {"2", long, false, nil}, {"2", "", true, nil}, {"3", long, false, nil},
	} {
		if err := m.apply(podNamed(step.name, "u", step.label), step.deleted); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
	}
	list := func(yield func(runtime.Object, error) bool) {
		_ = yield(podNamed("1", "u", long), nil) && yield(podNamed("2", "u", long), nil)
	}
	if err := m.replace(list); !errors.Is(err, errTooMany) || len(m.objects) < maxObjects/2 {
		t.Errorf("a list with labels beyond the limit: %v, %d pods are left", err, len(m.objects))
	}
}

// The API server may report a pod's end after its successor of the same name: the successor stays.
func TestLateDeleteKeepsTheSuccessor(t *testing.T) {
	s, _ := newAPI(podOptions(nil), nil)
	m := newMirror(s, pods{})
	event := func(uid types.UID, deleted bool, want string) {
		t.Helper()
		must(t, m.apply(podNamed("train-0", uid, ""), deleted))
		if got := s.Snapshot().Pods[PodName{"ml", "train-0"}].UID; got != want {
			t.Errorf("after an event of pod %s (deleted: %v) the snapshot has pod %q, want %q", uid, deleted, got, want)
		}
	}
	event("first", false, "first")
	event("second", false, "second")
	event("first", true, "second")
	event("second", true, "")
}

func TestLifeOfASlice(t *testing.T) {
	both := func(*apiServer) APIOptions { return APIOptions{Node: "node-1", Pods: true, Slices: true} }
	in(t, both, func(t *testing.T, s *apiServer, c *running) {
		s.Pods(podObject("ml", "a", "uid-a", nil))
		see := func(want map[string]string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, uuids(c.Snapshot().Slices)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		}
		defer func() {
			if n := len(c.Snapshot().Pods); n != 1 {
				t.Errorf("%d pods next to the slices, want 1", n)
			}
		}()
		of := func(generation int, uuid string) object {
			return sliceObject(fmt.Sprintf("s-%d", generation), nvidiaDriver, "node-1", generation, 1, gpuObject("gpu-0", uuid))
		}
		s.Slices(sliceObject("fabric", "compute-domain.nvidia.com", "node-1", 1, 1, gpuObject("channel-0", "X")))
		see(map[string]string{})
		s.Slices(of(1, "A"))
		see(map[string]string{"gpu-0": "A"})
		s.Slices(of(2, "B"))
		see(map[string]string{"gpu-0": "B"})
		s.RemoveSlice(of(1, "A"))
		see(map[string]string{"gpu-0": "B"})
		version := c.Snapshot().Version
		s.RemoveSlice(of(2, "B"))            // the kubelet starts
		see(map[string]string{"gpu-0": "B"}) // claims of running pods still name it
		s.Slices(of(1, "B"))                 // the driver publishes again, from the first generation on
		see(map[string]string{"gpu-0": "B"})
		if got := c.Snapshot().Version; got != version {
			t.Errorf("version %d, want %d", got, version)
		}
		s.Slices(of(1, "B"))
		see(map[string]string{"gpu-0": "B"})
		if got := c.Snapshot().Version; got != version {
			t.Errorf("version %d after no change, want %d", got, version)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if age := time.Since(c.Snapshot().SlicesTime); age > 2*time.Minute {
			t.Errorf("last confirmed %v ago", age)
		}
	})
}

// An API server that starts says "forbidden" until it has read its roles.
func TestOneRefusalAfterARestartIsNotReported(t *testing.T) {
	in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
		s.Pods(podObject("ml", "train-0", "uid-1", nil))
		time.Sleep(watchWorks)
		synctest.Wait()
		c.said()
		s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			apitest.Refuse(w, http.StatusForbidden, "Forbidden", "not yet")
			s.AnswerFirst(nil)
			return true
		})
		time.Sleep(time.Minute)
		s.Pods(podObject("ml", "train-1", "uid-2", nil))
		synctest.Wait()
		if got := c.said(); len(got) != 0 || len(c.Snapshot().Pods) != 2 {
			t.Errorf("said %q, %d pods", got, len(c.Snapshot().Pods))
		}
	})
}

// A version may be served without slices in it, and discovery may be hidden.
func TestVersionsAreTried(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		in(t, func(s *apiServer) APIOptions {
			s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case hidden && r.URL.Path == "/apis/resource.k8s.io":
					apitest.Refuse(w, http.StatusForbidden, "Forbidden", "no discovery")
				case strings.HasPrefix(r.URL.Path, "/apis/resource.k8s.io/v1/"), strings.HasPrefix(r.URL.Path, "/apis/resource.k8s.io/v1beta2/"):
					apitest.Refuse(w, http.StatusNotFound, "NotFound", "no such resource")
				default:
					return false
				}
				return true
			})
			s.Slices(sliceObject("a", nvidiaDriver, "node-1", 1, 1, gpuObject("gpu-0", "GPU-1")))
			return sliceOptions(s)
		}, func(t *testing.T, s *apiServer, c *running) {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if len(c.Snapshot().Slices) != 1 || c.health.State().Failing != "" {
				t.Errorf("hidden %v: %d devices, failing for %q", hidden, len(c.Snapshot().Slices), c.health.State().Failing)
			}
			if c.logs.FilterMessageSnippet("fails").Len() != 0 {
				t.Errorf("said %q", c.said())
			}
		})
	}
}

func TestUpgradesOfTheCluster(t *testing.T) {
	in(t, func(s *apiServer) APIOptions {
		s.Versions()
		return sliceOptions(s)
	}, func(t *testing.T, s *apiServer, c *running) {
		serve := func(versions ...string) {
			s.Versions(versions...)
			s.SetDown(true) // an upgrade restarts the API server
			time.Sleep(3 * time.Second)
			s.SetDown(false)
			time.Sleep(2 * longDelay)
			synctest.Wait()
		}
		if got := c.health.State().Failing; got != ReasonNotServed {
			t.Errorf("failing for %q", got)
		}
		device := DeviceName{nvidiaDriver, "node-1", "gpu-0"}
		for i, versions := range [][]string{{"v1alpha3", "v1beta1"}, {"v1beta1", "v1beta2"}, {"v1"}} {
			serve(versions...)
			uuid := fmt.Sprintf("GPU-%d", i)
			s.Slices(sliceObject("a", nvidiaDriver, "node-1", i, 1, gpuObject("gpu-0", uuid)))
			time.Sleep(time.Second)
			synctest.Wait()
			if got := c.Snapshot().Slices[device].UUID; got != uuid {
				t.Errorf("with %v: uuid %q, want %q; failing for %q", versions, got, uuid, c.health.State().Failing)
			}
		}
		c.said()
		s.Versions("v1beta2")
		s.AnswerFirst(nil) // ends watches, nothing else
		time.Sleep(time.Minute)
		synctest.Wait()
		if said := c.said(); !slices.Equal(said, []string{"switched API version"}) {
			t.Errorf("a version that takes over from another is told as %q", said)
		}
		// An upgrade that takes DRA away takes nothing from us.
		serve("v1alpha3")
		if got := c.Snapshot().Slices[device].UUID; got != "GPU-2" {
			t.Errorf("uuid %q", got)
		}
		if got := c.health.State().Failing; got != ReasonNotServed {
			t.Errorf("failing for %q", got)
		}
	})
}

func TestNothingIsAskedWithoutANodeName(t *testing.T) {
	in(t, func(s *apiServer) APIOptions {
		o := podOptions(s)
		o.Node = ""
		return o
	}, func(t *testing.T, s *apiServer, c *running) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := s.Asked(); len(got) != 0 {
			t.Errorf("asked %q", got)
		}
		if got := c.health.State().Failing; got != ReasonNoNode {
			t.Errorf("failing for %q", got)
		}
		if text := c.lastError(); !strings.Contains(text, "set NODE_NAME") {
			t.Errorf("said %q", text)
		}
	})
}
