package kube

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/kube/kubetest/apitest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"
)

func podOptions(*apiServer) APIOptions {
	return APIOptions{Node: "node-1", Pods: true, KeepLabel: func(name string) bool { return name == "app" }}
}

func sliceOptions(*apiServer) APIOptions { return APIOptions{Node: "node-1", Slices: true} }

type (
	apiServer = apitest.Server
	object    = apitest.Object
)

// sliceObject returns a ResourceSlice of version v1. devices holds attributes by device name.
func sliceObject(name, driver, pool string, generation, count int, devices ...object) object {
	list := []any{}
	for _, d := range devices {
		list = append(list, d)
	}
	return object{"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1", "metadata": object{"name": name},
		"spec": object{"driver": driver, "nodeName": "node-1", "devices": list,
			"pool": object{"name": pool, "generation": generation, "resourceSliceCount": count}}}
}

func gpuObject(name, uuid string) object {
	return object{"name": name, "attributes": object{"type": object{"string": "gpu"}, "uuid": object{"string": uuid}}}
}

// running is a running APIServer with one list, and its log.
type running struct {
	*APIServer
	health *Health
	logs   *observer.ObservedLogs
	stop   func() // waits for its end
}

func startAPI(t *testing.T, o APIOptions, config func() (*rest.Config, error)) *running {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	o.Log = zap.New(core)
	r := &running{APIServer: NewAPIServer(o), logs: logs}
	r.config, r.health = config, r.Health[0]
	r.stop = testkit.Start(t, r.Run)
	return r
}

// said returns the messages since the last call.
func (r *running) said() (all []string) {
	for _, e := range r.logs.TakeAll() {
		all = append(all, e.Message)
	}
	return all
}

// failing checks the reason for which the list fails ("" for none), and that the error names the remedy.
func (r *running) failing(t *testing.T, reason, says string) {
	t.Helper()
	synctest.Wait()
	s := r.health.State()
	if s.Failing != reason || reason != "" && !strings.Contains(s.Problem.Error(), says) {
		t.Errorf("failing for %q (%v), want %q and %q in the error", s.Failing, s.Problem, reason, says)
	}
}

// in runs f in a synctest bubble with an API server. At the end it checks that Run returns at once.
func in(t *testing.T, options func(*apiServer) APIOptions, f func(t *testing.T, s *apiServer, c *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Pipe(t, "node-1")
		c := startAPI(t, options(s), s.Config)
		synctest.Wait()
		f(t, s, c)
		c.said()
		began := time.Now()
		c.stop()
		took, said := time.Since(began), c.said()
		testkit.ErrorIf(t, took != 0 || len(said) > 0, "Run ended %v after its context, and says %q", took, said)
	})
}

func TestPodsComeAndGo(t *testing.T) {
	in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
		first := c.Snapshot()
		testkit.ErrorIf(t, first.Version != 1 || first.PodsTime.IsZero() || len(first.Pods) != 0, "an empty node is %+v, want version 1 with a time", first)
		s.Pods(apitest.Pod("ml", "train-0", "uid-1", map[string]string{"app": "train", "secret": "x"}))
		static := apitest.Pod("kube-system", "proxy-node-1", "uid-2", nil)
		static["metadata"].(object)["annotations"] = object{"kubernetes.io/config.mirror": "hash-2"}
		s.Pods(static)
		synctest.Wait()
		got := c.Snapshot()
		testkit.Equal(t, "pods", map[PodName]PodMeta{
			{"ml", "train-0"}:               {UID: "uid-1", Labels: map[string]string{"app": "train"}},
			{"kube-system", "proxy-node-1"}: {UID: "uid-2"},
		}, got.Pods)
		testkit.Equal(t, "by uid", map[string]PodName{
			"uid-1": {"ml", "train-0"}, "uid-2": {"kube-system", "proxy-node-1"}, "hash-2": {"kube-system", "proxy-node-1"},
		}, got.ByUID)
		testkit.Equal(t, "pods of a Snapshot that was published", 0, len(first.Pods))

		// An event that changes no kept member confirms the list, and so do bookmarks, about once a minute.
		time.Sleep(time.Second)
		s.Pods(apitest.Pod("ml", "train-0", "uid-1", map[string]string{"app": "train", "secret": "y"}))
		synctest.Wait()
		if again := c.Snapshot(); again.Version != got.Version || !again.PodsTime.After(got.PodsTime) {
			t.Errorf("version %d at %v, then %d at %v: want the same version, confirmed", got.Version, got.PodsTime, again.Version, again.PodsTime)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if now := c.Snapshot(); now.Version != got.Version || time.Since(now.PodsTime) > 2*time.Minute {
			t.Errorf("after an hour: version %d confirmed %v ago, want %d", now.Version, time.Since(now.PodsTime), got.Version)
		}

		// The server no longer has the last version, which is not a failure. A reused name is another pod.
		s.Slices(sliceObject("a", nvidiaDriver, "node-1", 1, 1)) // the version grows without an event
		s.Compact()
		time.Sleep(30 * time.Minute)
		s.RemovePod(apitest.Pod("ml", "train-0", "uid-1", nil))
		s.Pods(apitest.Pod("ml", "train-0", "uid-3", nil))
		s.RemovePod(static)
		synctest.Wait()
		testkit.Equal(t, "pods", map[PodName]PodMeta{{"ml", "train-0"}: {UID: "uid-3"}}, c.Snapshot().Pods)
		testkit.Equal(t, "said", []string{"mapping works"}, c.said())
	})
}

func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

type answer = func(w http.ResponseWriter, r *http.Request) bool

// refused refuses requests for paths that begin with on; "watch " selects watches.
func refused(code int, reason, on string) answer {
	return func(w http.ResponseWriter, r *http.Request) bool {
		path, onlyWatches := strings.CutPrefix(on, "watch ")
		if !strings.HasPrefix(r.URL.Path, path) || onlyWatches && !watches(r) {
			return false
		}
		apitest.Refuse(w, code, reason, "no")
		return true
	}
}

// says answers with these bodies. An empty list leaves lists working; an empty watch ends watches at once.
func says(list, watch string) answer {
	return func(w http.ResponseWriter, r *http.Request) bool {
		body := watch
		if !watches(r) {
			body = list
		}
		if body == "" && !watches(r) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
		return true
	}
}

func hangs(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

// TestFaults: after any API server fault the known objects stay, the log reports the fault once with its remedy,
// requests are few, and the fault ends when the server recovers.
func TestFaults(t *testing.T) {
	const list = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{`
	for _, test := range []struct {
		name    string
		options func(*apiServer) APIOptions
		answer  answer
		want    string // reason
		says    string
		news    bool // lists work, so the client finds another pod
	}{
		{"list forbidden", podOptions, refused(403, "Forbidden", "/api/v1/pods"), ReasonForbidden, `grant the verbs list and watch on resource "pods" in apiGroup "" to this service account`, false},
		{"watch forbidden", podOptions, refused(403, "Forbidden", "watch /api/v1/pods"), ReasonForbidden, `watch pods: grant the verbs list and watch on resource "pods" in apiGroup ""`, true},
		{"slices forbidden", sliceOptions, refused(403, "Forbidden", "/apis/resource.k8s.io/v1/"), ReasonForbidden, `grant the verbs list and watch on resource "resourceslices" in apiGroup "resource.k8s.io"`, false},
		{"no longer who we were", podOptions, refused(401, "Unauthorized", "/"), ReasonUnauthorized, "does not accept the token", false},
		{"gateway", podOptions, refused(502, "", "/"), ReasonUnreachable, " pods: ", false},
		{"too many requests", podOptions, refused(429, "TooManyRequests", "/"), ReasonUnreachable, " pods: ", false},
		{"no pods here", podOptions, refused(404, "NotFound", "/"), ReasonNotServed, `does not serve it in apiGroup ""`, false},
		{"no slices here", sliceOptions, refused(404, "NotFound", "/"), ReasonNotServed, `does not serve it in apiGroup "resource.k8s.io"`, false},

		{"no answer", podOptions, hangs, ReasonUnreachable, "no answer in time", false},
		{"no headers of a watch", podOptions, func(w http.ResponseWriter, r *http.Request) bool { return watches(r) && hangs(w, r) }, ReasonUnreachable, "no answer in time", true},
		{"half an answer to a list, then nothing", podOptions, func(w http.ResponseWriter, r *http.Request) bool {
			if watches(r) {
				return refused(410, "Expired", "/")(w, r)
			}
			fmt.Fprint(w, list)
			w.(http.Flusher).Flush()
			return hangs(w, r)
		}, ReasonUnreachable, "no answer in time", false},

		{"half an event", podOptions, says("", `{"type":"ADDED","object":{"kind":"PartialObjectMeta`), ReasonUnreachable, "at once", true},
		{"a page", podOptions, says("", "<html>bad gateway</html>"), ReasonMalformed, "watch pods", true},
		{"another object", podOptions, says("", `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x","uid":"y"}}}`+"\n"), ReasonMalformed, "resource version", true},
		{"no object", podOptions, says("", `{"type":"ADDED"}`+"\n"), ReasonMalformed, "", true},
		{"an unknown type", podOptions, says("", `{"type":"RENAMED","object":{"metadata":{"name":"x","resourceVersion":"7"}}}`+"\n"), ReasonMalformed, "unknown type", true},
		{"an internal error", podOptions, says("", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"etcd"}}`+"\n"), ReasonUnreachable, "etcd", true},
		{"no event", podOptions, says("", ""), ReasonUnreachable, "without an event", true},
		{"no JSON", podOptions, says("<html>login</html>", "<html>"), ReasonMalformed, "list pods", false},
		{"half a list", podOptions, says(list+`"resourceVersion":"7"},"items":[{"metada`, "<html>"), ReasonMalformed, "list pods", false},
		{"another kind", podOptions, says(`{"kind":"Gateway","apiVersion":"example.com/v1"}`, "<html>"), ReasonMalformed, "resource version", false},
		{"a list without a version", podOptions, says(list+`},"items":[]}`, "<html>"), ReasonMalformed, "resource version", false},
		{"nameless objects", podOptions, says(list+`"resourceVersion":"7"},"items":[{}]}`, "<html>"), ReasonMalformed, "without a name", false},
		{"null", podOptions, says(`null`, "<html>"), ReasonMalformed, "resource version", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, test.options, func(t *testing.T, s *apiServer, c *running) {
				known := func(want int) {
					t.Helper()
					testkit.Equal(t, "number of pods and devices", want, len(c.Snapshot().Pods)+len(c.Snapshot().Slices))
				}
				s.Pods(apitest.Pod("ml", "train-0", "uid-1", nil))
				s.Slices(sliceObject("a", nvidiaDriver, "node-1", 1, 1, gpuObject("gpu-0", "GPU-1")))
				synctest.Wait()
				s.AnswerFirst(test.answer)
				time.Sleep(30 * time.Minute)
				s.Pods(apitest.Pod("ml", "train-1", "uid-2", nil))
				s.Slices(sliceObject("a", nvidiaDriver, "node-1", 2, 1, gpuObject("gpu-0", "GPU-1"), gpuObject("gpu-1", "GPU-2")))
				time.Sleep(5 * time.Minute)
				c.failing(t, test.want, test.says)
				if test.news {
					known(2)
				} else {
					known(1)
				}
				testkit.Equal(t, "times told", 1, c.logs.FilterMessageSnippet("mapping failed").Len())
				testkit.AtMost(t, "requests in 35 minutes", 180, len(s.Asked()))
				s.AnswerFirst(nil)
				time.Sleep(longDelay * 2)
				c.failing(t, "", "")
				known(2)
				said := c.said()
				testkit.ErrorIf(t, !slices.Contains(said, "mapping works again"), "said %q", said)
			})
		})
	}
}

// A silent watch ends by itself.
func TestSilentWatch(t *testing.T) {
	in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
		s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			if !watches(r) {
				return false
			}
			w.(http.Flusher).Flush()
			return hangs(w, r)
		})
		time.Sleep(time.Minute)
		s.Pods(apitest.Pod("ml", "train-0", "uid-1", nil))
		time.Sleep(maxWatch + watchSlack + 2*lastDelay)
		synctest.Wait()
		testkit.Equal(t, "pods after the longest watch", 1, len(c.Snapshot().Pods))
	})
}

func TestAnswersWithoutEndAreNotReadWhole(t *testing.T) {
	for _, watch := range []bool{false, true} {
		in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
			sent := 0
			s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
				if watches(r) != watch {
					return watches(r)
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
			c.failing(t, ReasonTooLarge, "")
			testkit.AtMost(t, fmt.Sprintf("watch %v: bytes read", watch), 2*maxAnswer, sent)
		})
	}
}

// The kept objects are bounded. After a list or an event that is too large, the previous objects stay.
func TestObjectsAreBounded(t *testing.T) {
	m := mirror{kind: pods{func(name string) bool { return name == "app" }}, objects: map[PodName]*apiObject{}}
	for i := range maxObjects {
		m.objects[PodName{"ml", fmt.Sprint(i)}] = podNamed(fmt.Sprint(i), "u", "")
	}
	last, long := fmt.Sprint(maxObjects), strings.Repeat("x", maxSize/2)
	for i, step := range []struct {
		name, label string
		deleted     bool
		want        error
	}{
		{last, "", false, errTooMany}, {"0", "", true, nil}, {last, "", false, nil},
		{"1", long, false, nil}, {"2", long, false, errTooMany}, {"1", "", false, nil}, {"2", long, false, nil}, {"2", "", true, nil}, {"3", long, false, nil},
	} {
		err := m.put(podNamed(step.name, "u", step.label), step.deleted)
		testkit.ErrorIf(t, !errors.Is(err, step.want), "step %d: %v, want %v", i, err, step.want)
	}

	in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
		s.Pods(apitest.Pod("ml", "train-0", "uid-1", nil))
		synctest.Wait()
		s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			list := object{"metadata": object{"resourceVersion": "7"}, "items": make([]object, maxObjects+1)}
			for i := range list["items"].([]object) {
				list["items"].([]object)[i] = object{"metadata": object{"name": fmt.Sprint(i)}}
			}
			apitest.Reply(w, http.StatusOK, list)
			return true
		})
		time.Sleep(time.Hour)
		c.failing(t, ReasonTooLarge, "delete pods")
		testkit.Equal(t, "pods, of which one was known", 1, len(c.Snapshot().Pods))
	})
}

// podNamed returns a pod of namespace ml with a label.
func podNamed(name, uid, label string) *apiObject {
	o := &apiObject{}
	o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, o.Metadata.Labels = "ml", name, uid, map[string]string{"app": label}
	return o
}

// The API server may report a pod's end after its successor of the same name: the successor stays.
func TestLateDeleteKeepsTheSuccessor(t *testing.T) {
	m := mirror{kind: pods{}, objects: map[PodName]*apiObject{}}
	for _, e := range []struct {
		uid     string
		deleted bool
		want    string
	}{{"first", false, "first"}, {"second", false, "second"}, {"first", true, "second"}, {"second", true, ""}} {
		var next Metadata
		must(t, m.put(podNamed("train-0", e.uid, ""), e.deleted))
		m.kind.store(m.objects, &next)
		testkit.Equal(t, fmt.Sprintf("pod after an event of pod %s (deleted: %v)", e.uid, e.deleted), e.want, next.Pods[PodName{"ml", "train-0"}].UID)
	}
}

func TestLifeOfASlice(t *testing.T) {
	in(t, sliceOptions, func(t *testing.T, s *apiServer, c *running) {
		see := func(version uint64, want map[string]string) {
			t.Helper()
			synctest.Wait()
			diff := cmp.Diff(want, uuids(c.Snapshot().Slices))
			testkit.ErrorIf(t, diff != "" || c.Snapshot().Version != version, "version %d, want %d; devices (-want +got):\n%s", c.Snapshot().Version, version, diff)
		}
		of := func(generation int, uuid string) object {
			return sliceObject(fmt.Sprintf("s-%d", generation), nvidiaDriver, "node-1", generation, 1, gpuObject("gpu-0", uuid))
		}
		s.Slices(sliceObject("fabric", "compute-domain.nvidia.com", "node-1", 1, 1, gpuObject("channel-0", "X")))
		see(1, map[string]string{})
		s.Slices(of(1, "A"))
		see(2, map[string]string{"gpu-0": "A"})
		s.Slices(of(2, "B"))
		see(3, map[string]string{"gpu-0": "B"})
		s.RemoveSlice(of(1, "A"))
		s.RemoveSlice(of(2, "B"))               // the kubelet starts
		see(3, map[string]string{"gpu-0": "B"}) // claims of running pods still name it
		s.Slices(of(1, "B"))                    // the driver publishes again, starting at the first generation
		see(3, map[string]string{"gpu-0": "B"})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		testkit.AtMost(t, "age of the last confirmation", 2*time.Minute, time.Since(c.Snapshot().SlicesTime))
	})
}

// A starting API server answers "forbidden" until it has read its roles.
func TestOneRefusalAfterARestartIsNotReported(t *testing.T) {
	in(t, podOptions, func(t *testing.T, s *apiServer, c *running) {
		s.Pods(apitest.Pod("ml", "train-0", "uid-1", nil))
		time.Sleep(watchWorks)
		synctest.Wait()
		c.said()
		s.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
			apitest.Refuse(w, http.StatusForbidden, "Forbidden", "not yet")
			s.AnswerFirst(nil)
			return true
		})
		time.Sleep(time.Minute)
		s.Pods(apitest.Pod("ml", "train-1", "uid-2", nil))
		synctest.Wait()
		got := c.said()
		testkit.ErrorIf(t, len(got) != 0 || len(c.Snapshot().Pods) != 2, "said %q, %d pods", got, len(c.Snapshot().Pods))
	})
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
		c.failing(t, ReasonNotServed, "")
		device := DeviceName{nvidiaDriver, "node-1", "gpu-0"}
		for i, versions := range [][]string{{"v1alpha3", "v1beta1"}, {"v1beta1", "v1beta2"}, {"v1"}} {
			serve(versions...)
			uuid := fmt.Sprintf("GPU-%d", i)
			s.Slices(sliceObject("a", nvidiaDriver, "node-1", i, 1, gpuObject("gpu-0", uuid)))
			time.Sleep(time.Second)
			synctest.Wait()
			testkit.Equal(t, fmt.Sprintf("uuid with %v; failing for %q", versions, c.health.State().Failing), uuid, c.Snapshot().Slices[device].UUID)
		}
		c.said()
		s.Versions("v1beta2")
		s.AnswerFirst(nil) // ends watches, nothing else
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, "events of a version that takes over from another", []string{"switched API version"}, c.said())
		// An upgrade that removes the API leaves the known devices.
		serve("v1alpha3")
		testkit.Equal(t, "uuid", "GPU-2", c.Snapshot().Slices[device].UUID)
		c.failing(t, ReasonNotServed, "")
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
		testkit.Equal(t, "asked", []string(nil), s.Asked())
		c.failing(t, ReasonNoNode, "set NODE_NAME")
	})
}
