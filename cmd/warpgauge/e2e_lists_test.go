package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestE2EListsOfAServer: a list from a web server reaches the page, and survives a start without the server.
func TestE2EListsOfAServer(t *testing.T) {
	t.Parallel()
	exe := build(t)
	var list atomic.Pointer[string]
	give := func(text string) { list.Store(&text) }
	give(listA)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tag := fmt.Sprintf("%q", strconv.Itoa(len(*list.Load())))
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write([]byte(*list.Load()))
	}))
	defer web.Close()
	dir := filepath.Join(t.TempDir(), "lists")
	args := []string{"-c", "50", "--remote-config=apply", "--remote-url=" + web.URL + "/list.csv?key=secret", "--remote-interval=1s", "--remote-directory=" + dir}
	e := serve(t, exe, args...)
	e.await(t, "the server's list", count(8, markerA), is(1, "warpgauge_remote_config_status", "status", "applied"), count(1, "warpgauge_list_applied_timestamp_seconds"),
		is(1, "warpgauge_list_info", "origin", web.URL+"/list.csv", "revision", strconv.Itoa(len(listA))))
	give(listA + "DCGM_FI_PROF_SM_ACTIVE, gauge, x\nDCGM_FI_DEV_MEM_CLOCK, gauge, x, interval=10ms\n")
	e.await(t, "a list that is refused", is(1, "warpgauge_remote_config_status", "status", "refused"), is(2, "warpgauge_remote_refused_lines"))
	body := string(get(t, newClient(t), e.url+"/api/v1/list").body)
	for _, want := range []string{`"line":5`, `"line":6`, "--remote-allow=profiling", `"status":"refused"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the API lacks %s:\n%s", want, body)
		}
	}
	web.Close()
	e.await(t, "no server, and the list stays", is(1, "warpgauge_remote_config_status", "status", "unreachable"), count(8, markerA))
	if page := get(t, newClient(t), e.url+"/metrics").body; strings.Contains(string(page)+e.Output(), "secret") {
		t.Error("a secret is shown")
	}
	e.ends(t, syscall.SIGTERM)

	e = serve(t, exe, args...)
	e.await(t, "the kept list", count(8, markerA), count(0, "DCGM_FI_DEV_FB_USED"), is(1, "warpgauge_list_info", "origin", web.URL+"/list.csv"))
	e.ends(t, syscall.SIGTERM)
	must(t, os.Truncate(filepath.Join(dir, "list"), 100))
	e = serve(t, exe, args...)
	e.await(t, "the local list", count(8, "DCGM_FI_DEV_FB_USED"))
	e.awaitLog(t, "truncated or damaged")
}
