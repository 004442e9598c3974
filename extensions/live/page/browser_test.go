package page

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/browser"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/events"
)

// TestBrowserModules runs testdata/modules.js.
func TestBrowserModules(t *testing.T) {
	p := browser.Open(t).Page(t, 800, 600)
	url := h100(1).serve(t, "")
	p.Open(url + "test/modules.html")
	p.Wait("globalThis.results")
	var results struct {
		Wrong []string
		Ran   int
	}
	p.Eval("results", &results)
	testkit.Equal(t, "problems", []string(nil), slices.Concat(results.Wrong, p.Problems(url)))
	testkit.Between(t, "tests that ran", 10, 1000, results.Ran)
}

// shown is a node with its page in a browser.
type shown struct {
	name  string
	node  func() *node
	tiles int
	want  []string
	no    []string
}

var views = []shown{
	{"one", func() *node { return h100(1) }, 1, []string{"(simulated)", "1 up", "NVIDIA H100 80GB HBM3", "/ 700 W", "power cap", "XID 31: GPU memory page fault", "recording-20261122-174000.000-xid.om.zst (81.2 kB)"}, []string{"compute instance", "NaN", "undefined", "null"}},
	{"a short list", func() *node {
		n := h100(1)
		n.fields = n.fields[:1]
		return n
	}, 1, []string{"1 up"}, []string{"NaN", "undefined", "null"}},
	{"eight", func() *node { return h100(8) }, 8, []string{"8 up", "of 5,600 W", "training/llm-0/trainer"}, []string{"NaN", "undefined", "null"}},
	{"mig", mig, 19, []string{"Instances", "GPU 0 · 3g.20gb #1", "GPU 0 · 1g.5gb #13", "training/llm-1/3g.20gb"}, []string{"NaN", "undefined", "null"}},
	{"amd", amd, 8, []string{"AMD Instinct MI300X", "/ 750 W", "62 °C · memory 51", "100.0 / 192.0 GiB", "SM 2,100 MHz · memory 1,300", "▲ power"}, []string{"Tensor", "NaN", "undefined", "null"}},
	{"lost", func() *node {
		n := h100(8)
		n.faults += "  - {kind: lost, device: 3, at: 14m}\n"
		return n
	}, 8, []string{"7 of 8 up", "GPU 3 is lost: simulated fault: device lost", "■ lost"}, []string{"NaN", "undefined"}},
	{"verdicts", func() *node {
		n := h100(4)
		n.verdicts = []events.Verdict{
			{State: events.Failed, Reason: "xid_79", Text: "XID 79: GPU has fallen off the bus", Action: events.ActionReboot},
			{State: events.Degraded, Reason: "nvlink_errors", Text: "a link has more errors than are acceptable", Action: events.ActionDrain},
			{State: events.Unknown, Reason: "stalled", Text: "the device has no new values", Action: events.ActionNone},
		}
		return n
	}, 4, []string{"GPU 0 is failed: XID 79: GPU has fallen off the bus; action: reboot", "GPU 1 is degraded: a link has more errors than are acceptable; action: drain"}, []string{"NaN", "undefined"}},
}

// ready is true once tiles have values and charts are drawn.
const ready = `globalThis.warpgauge?.model.rows > 0 && !warpgauge.queue.length && !warpgauge.fetching
	&& warpgauge.first && document.querySelector('.plot path:not(.grid)[d^=M]')`

// TestBrowserViews opens each kind of node in both themes and both widths.
func TestBrowserViews(t *testing.T) {
	b := browser.Open(t)
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) {
			url := v.node().serve(t, "/gpus/node-17")
			p := b.Page(t, 1440, 2400)
			p.Open(url)
			p.Wait(ready)
			var tiles int
			p.Eval("document.querySelectorAll('.tile').length", &tiles)
			testkit.Equal(t, "tiles", v.tiles, tiles)
			for _, want := range v.want {
				p.Wait(fmt.Sprintf("document.body.innerText.includes(%q)", want))
			}
			client, err := apiv1.NewClient(url, apiv1.ClientOptions{})
			must(t, err)
			answer := testkit.Get(client.Devices(t.Context()))(t)
			for _, d := range answer.Devices {
				if d.Status.Word != "up" {
					p.Wait(fmt.Sprintf("[...document.querySelectorAll('.tile')].some((e) => [%q, %q, %q].every((text) => e.innerText.includes(text)))", "GPU "+d.GPU, d.Status.Word, d.Status.Why))
				}
			}
			for _, dark := range []bool{false, true} {
				p.Dark(dark)
				for _, width := range []int{1440, 360} {
					p.Resize(width, 2400)
					p.Wait(fmt.Sprintf("innerWidth === %d", width))
					check(t, p, fmt.Sprintf("%d wide, dark %v", width, dark), v.no)
				}
			}
			testkit.Equal(t, "problems", []string(nil), p.Problems(url))
		})
	}
}

// check looks for faults that any view can have: unwanted text, elements wider than the window, and
// problems for users without a mouse, colour vision or sight.
func check(t *testing.T, p *browser.Page, what string, no []string) {
	t.Helper()
	var text string
	p.Eval("document.body.innerText", &text)
	testkit.Lacks(t, what, text, no...)
	wrong, headings := []string{}, false
	p.Eval("("+audit+")()", &wrong)
	testkit.Equal(t, what, []string{}, wrong)
	for _, n := range p.Accessible() {
		if n.Ignored {
			continue
		}
		headings = headings || n.Role == "heading"
		switch n.Role {
		case "button", "link", "checkbox", "slider", "combobox", "searchbox", "image", "img", "dialog", "region", "table", "article":
			testkit.ErrorIf(t, strings.TrimSpace(n.Name) == "", "%s: a %s has no name for assistive technology", what, n.Role)
		}
	}
	testkit.Equal(t, what+": headings in the accessibility tree", true, headings)
}

// audit returns measurable WCAG violations: text contrast below 4.5:1 (3:1 for large text), duplicate ids, skipped heading
// levels, targets smaller than 24 pixels, controls that the keyboard cannot reach, and text outside the window.
const audit = `() => {
	const wrong = [], rgb = (c) => {
		const x = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
		x.fillStyle = c; x.fillRect(0, 0, 1, 1);
		return [...x.getImageData(0, 0, 1, 1).data];
	}, memo = new Map(), parse = (c) => { if (!memo.has(c)) memo.set(c, rgb(c)); return memo.get(c); };
	const luminance = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	const background = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
	const visible = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length;
	const say = (what, e) => wrong.push(what + ': ' + (e.id || e.className || e.tagName) + ' "' + e.textContent.trim().slice(0, 40) + '"');
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || !visible(e) || e.closest('.hidden, script, option, .skip')) continue;
		const style = getComputedStyle(e), a = luminance(parse(style.color)), b = luminance(background(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
		if (ratio < (large ? 3 : 4.5)) say('contrast of ' + ratio.toFixed(2), e);
		const box = e.getBoundingClientRect();
		if (box.right > innerWidth + 1 && !e.closest('.scroll') && style.overflow !== 'hidden') say('text outside of the window', e);
	}
	if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is ' + document.documentElement.scrollWidth + ' wide in a window of ' + innerWidth);
	const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
	for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) wrong.push('two elements have the id ' + id);
	let before = 0;
	for (const e of document.querySelectorAll('h1, h2, h3, h4')) {
		if (!visible(e) || e.closest('dialog')) continue;
		const n = Number(e.tagName[1]);
		if (n > before + 1) say('a level of headings is skipped', e);
		before = n;
	}
	for (const e of document.querySelectorAll('button, a[href], input, select, summary')) {
		if (!visible(e) || e.classList.contains('skip')) continue;
		const box = (e.closest('label') || e).getBoundingClientRect();
		if (box.height < 20 && !e.closest('p, li, dd, dt, td')) say('a target of ' + box.height + ' pixels', e);
		if (e.tabIndex < 0) say('not reached by the keyboard', e);
	}
	for (const e of document.querySelectorAll('[aria-labelledby]')) if (!document.getElementById(e.getAttribute('aria-labelledby')) && visible(e)) say('labelled by what is not there', e);
	if (!document.documentElement.lang) wrong.push('no language');
	return wrong;
}`

// TestBrowserUse presses keys and buttons: details, plot, freeze, zoom, spans.
func TestBrowserUse(t *testing.T) {
	n := h100(4)
	url := n.serve(t, "")
	p := browser.Open(t).Page(t, 1440, 1600)
	p.Open(url)
	p.Wait(ready)

	// The keyboard reaches all controls in page order.
	var got []string
	for range 8 {
		p.Key("Tab")
		var name string
		p.Eval("document.activeElement.ariaLabel || document.activeElement.innerText", &name)
		got = append(got, name)
	}
	want := []string{"Skip to the GPUs", "30 s", "1 min", "5 min", "15 min", "Freeze", "GPU 0", "GPU 1"}
	testkit.Equal(t, "order of focus", want, got)

	p.Eval(`document.querySelectorAll('.tile .name')[1].focus()`, nil)
	p.Key("Enter")
	p.Wait(`document.querySelector('#detail[open] tbody tr')`)
	for _, want := range []string{"DCGM_FI_PROF_DRAM_ACTIVE", "blank", "550.54.15-simulated", "PCI address", "NVIDIA H100", "training/llm-1/trainer", "training/llm-1/python", "Averaged over"} {
		p.Wait(fmt.Sprintf("document.getElementById('detail').innerText.includes(%q)", want))
	}
	check(t, p, "details", []string{"NaN", "undefined", "null"})
	p.Eval(`[...document.querySelectorAll('#detail button')].find((b) => b.ariaLabel === 'Plot DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL').click()`, nil)
	p.Wait(`warpgauge.detail.chart.lanes.some((l) => l.label === 'DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL' && l.lines[0].series()?.ring.length > 100)`)
	p.Eval(`document.querySelector('#detail input').value = 'dram'; document.querySelector('#detail input').dispatchEvent(new Event('input'))`, nil)
	p.Wait(`document.querySelectorAll('#detail tbody')[0].rows.length === 1`)
	p.Key("Escape")
	p.Wait(`!document.querySelector('dialog[open]') && document.activeElement.innerText === 'GPU 1' && !location.hash`)

	// Freeze: readings and charts keep their time, also while the slider moves.
	p.Eval("document.getElementById('freeze').click()", nil)
	p.Wait(`warpgauge.view.end !== null && !document.getElementById('scrub').hidden && document.getElementById('freeze').getAttribute('aria-pressed') === 'true'`)
	var end float64
	p.Eval("warpgauge.view.end", &end)
	p.Eval("document.getElementById('time').focus()", nil)
	p.Key("ArrowLeft")
	p.Wait(fmt.Sprintf("warpgauge.view.end < %f && warpgauge.view.end > %f - 1000", end, end))
	check(t, p, "frozen", []string{"NaN", "undefined"})
	p.Eval("document.getElementById('live').click()", nil)
	p.Wait(`warpgauge.view.end === null && document.getElementById('scrub').hidden`)
	p.Eval("document.querySelectorAll('#spans button')[1].click()", nil)
	p.Wait(`warpgauge.view.span === 60000`)

	// Drag across a chart.
	var box struct{ X, Y, Width float64 }
	p.Eval(`document.querySelector('.tile .plot').scrollIntoView()`, nil)
	p.Eval(`document.querySelector('.tile .plot').getBoundingClientRect().toJSON()`, &box)
	p.Mouse("mouseMoved", box.X+50, box.Y+30)
	p.Wait(`[...document.querySelectorAll('.tip')].some((e) => !e.hidden && e.innerText.includes('Tensor'))`)
	p.Mouse("mousePressed", box.X+50, box.Y+30)
	p.Mouse("mouseMoved", box.X+box.Width/2, box.Y+30)
	p.Mouse("mouseReleased", box.X+box.Width/2, box.Y+30)
	p.Wait(`warpgauge.view.end !== null && warpgauge.view.span < 30000`)
	var id string
	p.Eval("warpgauge.model.tiles()[2].id", &id)
	p.Open(url + "#device=" + id)
	p.Eval("location.reload()", nil)
	p.Wait(`document.querySelector('#detail[open]')?.innerText.includes('GPU 2')`)

	// After a reload of the list the page shows the new fields.
	n.open(t, slices.DeleteFunc(n.fields, func(name string) bool { return strings.Contains(name, "TENSOR") }))
	n.log.Add(&events.Event{Time: n.now(), Kind: events.Reload, Text: "field list reloaded"})
	p.Wait(`warpgauge.model.columns.length > 0 && !warpgauge.model.columns.some((c) => c.field.includes('TENSOR'))`)
	p.Wait(`warpgauge.model.list.size > 0 && ![...warpgauge.model.list.keys()].some((name) => name.includes('TENSOR'))`)
	p.Wait(`document.querySelector('.tile .of-activity dd').innerText.includes('%')`)
	testkit.Equal(t, "problems", []string(nil), p.Problems(url))
}

// TestBrowserReconnect: while the exporter is down, or a proxy answers instead, the page shows it
// and retries. Afterwards it fetches the missed samples.
func TestBrowserReconnect(t *testing.T) {
	b := browser.Open(t)
	for name, proxied := range map[string]bool{"direct": false, "proxy": true} {
		t.Run(name, func(t *testing.T) {
			n := h100(2)
			n.proxied = proxied
			p := b.Page(t, 1440, 1600)
			p.Open(n.serve(t, ""))
			p.Wait(ready)
			asked := n.fail(true)
			p.Wait(`!document.getElementById('banner').hidden && /does not answer. Last data at \d\d:\d\d:\d\d, \d+ s ago/.test(document.getElementById('banner').innerText) && document.body.classList.contains('stale')`)
			p.Wait(`document.querySelector('.tile .of-activity dd').innerText.includes('%')`) // the last reading stays visible
			p.Wait(`Date.now() - warpgauge.link.answered > 5000`)                             // some rows are missed
			var last float64
			p.Eval("warpgauge.model.newest", &last)
			testkit.AtMost(t, "requests in some seconds in which there was no answer", 30, n.fail(false)-asked)
			p.Wait(`document.getElementById('banner').hidden && !document.body.classList.contains('stale')`)
			p.Wait(fmt.Sprintf("warpgauge.model.newest > %f + 3000", last))
			p.Wait(`!warpgauge.queue.length && !warpgauge.fetching`)
			p.Wait(fmt.Sprintf(noGap, last))
		})
	}
}

// TestBrowserHidden: a hidden page has no stream. When it becomes visible, it catches up and does
// not report its own pause as a fault.
func TestBrowserHidden(t *testing.T) {
	n := h100(2)
	p := browser.Open(t).Page(t, 1440, 1600)
	p.Open(n.serve(t, ""))
	p.Wait(ready)
	p.Eval("warpgauge.link.pause()", nil)
	var last float64
	p.Eval("warpgauge.model.newest", &last)
	p.Wait(fmt.Sprintf("Date.now() > %f + 4000", last))
	eventually.OK(t, "no stream", func() error {
		if streams := n.streams.Load(); streams > 0 {
			return fmt.Errorf("%d streams", streams)
		}
		return nil
	})
	p.Eval(`new MutationObserver(() => { globalThis.alarmed ||= !document.getElementById('banner').hidden; }).observe(document.getElementById('banner'), { attributes: true }); warpgauge.link.resume()`, nil)
	p.Wait(fmt.Sprintf("warpgauge.model.newest > %f + 6000 && !warpgauge.queue.length && !warpgauge.fetching", last))
	p.Wait(fmt.Sprintf(noGap, last))
	var alarmed bool
	p.Eval("!!globalThis.alarmed", &alarmed)
	testkit.Equal(t, "the page says that the exporter does not answer", false, alarmed)
}

// noGap is true if recent samples have no gap.
const noGap = `(() => {
	const { ring } = warpgauge.model.pick(warpgauge.model.tiles()[1].id, 'activity');
	for (let i = ring.from(%f - 5000) + 1; i < ring.length; i++) if (ring.time(i) - ring.time(i - 1) > 1500) return false;
	return true;
})()`

// TestBrowserReplay: a recording has no new rows. Its page shows readings without complaints and can go back in time.
func TestBrowserReplay(t *testing.T) {
	n := h100(2)
	n.replayed = "recording-1"
	p := browser.Open(t).Page(t, 1440, 1600)
	p.Open(n.serve(t, ""))
	p.Wait(`document.body.innerText.includes('recording-1') && document.querySelector('.tile .of-activity dd')?.innerText.includes('%')`)
	p.Eval("warpgauge.showTime(Date.now() - 200000)", nil)
	p.Wait(`warpgauge.view.end < Date.now() - 20000 && document.getElementById('scrub').innerText.includes('Back to now')`)
	p.Wait(`document.querySelector('.tile .of-activity dd').innerText.includes('%') && document.getElementById('banner').hidden`)
}

// TestBrowserHostile: names from others are shown as plain text.
func TestBrowserHostile(t *testing.T) {
	const name = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`
	n := h100(2)
	n.hostile = name
	n.faults += "  - {kind: stalled, device: 0, at: 14m}\n"
	url := n.serve(t, "")
	p := browser.Open(t).Page(t, 1440, 1600)
	p.Open(url)
	p.Wait(ready)
	p.Eval("warpgauge.openDetail(warpgauge.model.tiles()[1].id)", nil)
	p.Wait(`document.querySelector('#detail[open] tbody tr')`)
	for _, part := range []string{"summary", "events", "detail"} {
		p.Wait(fmt.Sprintf("document.getElementById(%q).innerText.includes('<img src=x')", part))
	}
	var found int
	p.Eval("document.querySelectorAll('img').length + document.scripts.length - 1 + (document.title.includes('taken') ? 1 : 0)", &found)
	testkit.Equal(t, "parts of the page that a name became", 0, found)
	testkit.Equal(t, "problems", []string(nil), p.Problems(url))
}

// TestBrowserTwoHours streams two hours in a few seconds. The tab's memory must not grow after the
// first 15 minutes, the period that the page keeps.
func TestBrowserTwoHours(t *testing.T) {
	n := h100(8)
	n.speed = 900
	url := n.serve(t, "")
	p := browser.Open(t).Page(t, 1440, 1600)
	p.Open(url)
	p.Wait(ready)
	seen := func(d time.Duration) int64 {
		least := int64(math.MaxInt64)
		for minute := range 5 { // rows that wait for a busy browser count, too
			p.Wait(fmt.Sprintf("warpgauge.model.rows > %d", 8*(int(d.Seconds())+60*minute)))
			least = min(least, p.Heap())
		}
		return least
	}
	before := seen(30 * time.Minute)
	after := seen(2 * time.Hour)
	t.Logf("%d KiB after half an hour, %d KiB after two", before>>10, after>>10)
	testkit.AtMost(t, "bytes after two hours", before+before/5+1<<20, after)
	testkit.Equal(t, "problems", []string(nil), p.Problems(url))
}

var pictures = flag.String("pictures", "", "draw the pictures of docs/live.md with this exporter")

// TestBrowserPictures takes the pictures for docs/live.md: make live-pictures. It uses the real
// exporter with simulated GPUs; one of them has an XID and another is lost.
func TestBrowserPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("draws pictures only: make live-pictures")
	}
	exporter, errExporter := filepath.Abs(*pictures)
	out, errOut := filepath.Abs("../../../docs/pictures")
	spec := filepath.Join(t.TempDir(), "spec.yaml")
	faults := "faults:\n  - {at: 40s, device: 2, kind: xid, xid: 31}\n  - {at: 60s, device: 5, kind: lost}\nprocesses:\n"
	for i := range 4 {
		faults += fmt.Sprintf("  - {device: %d, pid: %d, memory: %d, busy: 93}\n", i, os.Getpid(), 61474836480+i<<30)
	}
	must(t, errors.Join(errExporter, errOut, os.WriteFile(spec, []byte(faults), 0o600)))
	const address = "127.0.0.1:19400"
	cmd := exec.Command(exporter, "--address="+address, "--fake-spec="+spec, "--enable-only=fake",
		"--collectors=etc/recommended-counters.csv", "--collect-interval=100", "--recorder-directory="+filepath.Join(t.TempDir(), "recordings"), "--recorder-after=5s")
	cmd.Dir = "../../.."
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	time.Sleep(75 * time.Second) // the charts' span
	b := browser.Open(t)
	for _, picture := range []struct {
		name          string
		width, height int
		dark          bool
		do            string
	}{
		{"live-node", 1440, 2240, false, ""},
		{"live-detail", 1440, 1000, true, "warpgauge.openDetail(warpgauge.model.tiles()[2].id)"},
		{"live-phone", 360, 900, true, ""},
	} {
		p := b.Page(t, picture.width, picture.height)
		p.Dark(picture.dark)
		p.Open("http://" + address + "/")
		p.Wait(ready)
		p.Eval("warpgauge.view.set(60000)", nil)
		if picture.do != "" {
			p.Eval(picture.do, nil)
			p.Wait(`document.querySelector('#detail[open] tbody tr')`)
			p.Eval("document.activeElement.blur()", nil)
		}
		p.Eval("new Promise((r) => setTimeout(r, 2500))", nil)
		p.Screenshot(filepath.Join(out, picture.name+".webp"))
		testkit.Equal(t, picture.name+": problems", []string(nil), p.Problems("http://"+address+"/"))
	}
}
