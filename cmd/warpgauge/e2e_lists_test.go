package main_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"syscall"
	"testing"

	"warpgauge/internal/testkit"
)

// TestE2EListsOfAServer: a list from a web server reaches the page, and survives a start without the server. The address's
// secret is not shown.
func TestE2EListsOfAServer(t *testing.T) {
	t.Parallel()
	exe := build(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"7"`)
		_, _ = w.Write([]byte(listA))
	}))
	defer web.Close()
	args := []string{"-c", "50", "--remote-config=apply", "--remote-url=" + web.URL + "/list.csv?key=secret", "--remote-interval=1s", "--remote-limit=lost=0.9", "--remote-directory=" + filepath.Join(t.TempDir(), "lists")}
	served := is(1, "warpgauge_list_info", "origin", web.URL+"/list.csv", "revision", "7")
	e := serve(t, exe, args...)
	e.await(t, "the server's list", count(8, markerA), is(1, "warpgauge_remote_config_status", "status", "applied"), served)
	testkit.Lacks(t, "page and log", string(get(t, newClient(t), e.url+"/metrics").body)+e.Output(), "secret")
	e.ends(t, syscall.SIGTERM)
	web.Close()
	e = serve(t, exe, args...)
	e.await(t, "the kept list", count(8, markerA), served, is(1, "warpgauge_remote_config_status", "status", "unreachable"))
}
