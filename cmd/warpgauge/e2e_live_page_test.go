package main_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit/browser"
	kubelet "warpgauge/pkg/kube/kubetest"
)

// TestE2ELivePage opens the binary's page in a browser: through a reverse proxy with a path prefix,
// while a GPU is lost, and while the exporter is gone.
func TestE2ELivePage(t *testing.T) {
	t.Parallel()
	exe := build(t)
	b := browser.Open(t)
	k := kubelet.Start(t)
	lost := newTrouble(t)
	spec := faults(t, lost.fault("device: 5, kind: lost"), lost.fault("device: 2, kind: xid, xid: 31"))
	full := serve(t, exe, withKubelet(k.Socket(), spec, "--collect-interval=100")...)
	gpus := full.uuids(t)
	k.Set(pod("train-0", gpus["0"], gpus["1"]))
	full.await(t, "the pods", podOf(map[string]string{"0": "train-0"}))

	target, err := url.Parse(full.url)
	must(t, err)
	reverse := httputil.NewSingleHostReverseProxy(target)
	reverse.ErrorLog = log.New(io.Discard, "", 0) // the exporter goes away later
	proxy := httptest.NewServer(http.StripPrefix("/gpus/node-17", reverse))
	t.Cleanup(proxy.CloseClientConnections)
	address := proxy.URL + "/gpus/node-17/"
	p := b.Page(t, 1440, 2000)
	p.Open(address)
	p.Wait(`globalThis.warpgauge?.model.rows > 0 && !warpgauge.queue.length && !warpgauge.fetching && document.querySelectorAll('.tile').length === 8`)
	for _, want := range []string{"ml/train-0/main", "(simulated)", "8 up", "collector fake is up"} {
		p.Wait(fmt.Sprintf("document.body.innerText.includes(%q)", want))
	}
	p.Wait(`warpgauge.model.pick(warpgauge.model.tiles()[0].id, 'activity').ring.length > 20`)
	p.Eval(`warpgauge.openDetail(warpgauge.model.tiles()[0].id)`, nil)
	p.Wait(`document.querySelector('#detail[open] tbody tr') && document.getElementById('detail').innerText.includes('DCGM_FI_DEV_FB_RESERVED')`)
	p.Key("Escape")

	lost.begin(t)
	p.Wait(`document.querySelectorAll('.tile')[5].innerText.includes('■ lost') && document.getElementById('summary').innerText.includes('GPU 5 is lost: simulated fault: device lost')`)
	p.Wait(`document.getElementById('events').innerText.includes('XID 31') && document.querySelectorAll('.tile')[5].querySelector('.of-activity dd').innerText === '–'`)
	for _, problem := range p.Problems(address) {
		t.Error(problem)
	}

	full.ends(t, syscall.SIGTERM)
	p.Wait(`!document.getElementById('banner').hidden && document.getElementById('banner').innerText.includes('Last data at')`)

	anonymous := serve(t, exe, withKubelet(k.Socket(), "--web-page=anonymous")...)
	anonymous.await(t, "the pods", podOf(map[string]string{"0": "train-0"}))
	p = b.Page(t, 360, 800)
	p.Open(anonymous.url + "/")
	p.Wait(`globalThis.warpgauge?.model.rows > 0 && document.querySelectorAll('.tile').length === 8`)
	var text string
	p.Eval("document.body.innerText + JSON.stringify([...warpgauge.model.devices.values()])", &text)
	if strings.Contains(text, "train-0") {
		t.Errorf("--web-page=anonymous names a pod:\n%s", text)
	}
	for _, problem := range p.Problems(anonymous.url + "/") {
		t.Error(problem)
	}
}
