package opamp

import (
	"cmp"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/open-telemetry/opamp-go/protobufs"
	"google.golang.org/protobuf/proto"

	"warpgauge/pkg/lists"
)

// Bounds of a report.
const (
	maxText       = 1024 // bytes of a name, a status, an error
	maxReason     = 4096 // of a refusal's text
	maxComponents = 1024 // per group
	maxEffective  = 1 << 20
)

// capabilities of this agent. It declares no custom messages, packages, connection settings, restart or own telemetry.
const capabilities = uint64(protobufs.AgentCapabilities_AgentCapabilities_ReportsStatus |
	protobufs.AgentCapabilities_AgentCapabilities_AcceptsRemoteConfig |
	protobufs.AgentCapabilities_AgentCapabilities_ReportsEffectiveConfig |
	protobufs.AgentCapabilities_AgentCapabilities_ReportsRemoteConfig |
	protobufs.AgentCapabilities_AgentCapabilities_ReportsHealth |
	protobufs.AgentCapabilities_AgentCapabilities_ReportsHeartbeat)

// message returns the state without the parts that the server knows, and the whole state.
func (a *Agent) message() (changed, whole *protobufs.AgentToServer) {
	facts, running := a.o.Node.Facts(), a.o.Node.Effective()
	changed, whole = a.envelope(), a.envelope()
	whole.AgentDescription, changed.AgentDescription = part(a.description(&facts), a.known.AgentDescription)
	whole.Health, changed.Health = part(a.health(&facts, running), a.known.Health)
	whole.EffectiveConfig, changed.EffectiveConfig = part(effectiveConfig(running), a.known.EffectiveConfig)
	whole.RemoteConfigStatus, changed.RemoteConfigStatus = part(a.status, a.known.RemoteConfigStatus)
	return changed, whole
}

// part returns a part of a message, and again unless the server has it.
func part[T proto.Message](now, known T) (whole, changed T) {
	if !proto.Equal(now, known) {
		changed = now
	}
	return now, changed
}

// envelope returns the parts that every message has.
func (a *Agent) envelope() *protobufs.AgentToServer {
	return &protobufs.AgentToServer{InstanceUid: a.id[:], SequenceNum: a.sequence, Capabilities: capabilities}
}

func (a *Agent) description(f *Facts) *protobufs.AgentDescription {
	identifying := []*protobufs.KeyValue{
		attribute("service.name", ServiceName),
		attribute("service.instance.id", a.id.String()),
		attribute("service.version", a.o.Identity.Version),
	}
	others := []*protobufs.KeyValue{
		attribute("host.name", a.o.Identity.Hostname),
		attribute("os.type", runtime.GOOS),
	}
	// Without any GPU, a collector that is not up may still find some.
	if f.GPUs > 0 || !slices.ContainsFunc(f.Collectors, func(c Component) bool { return !c.Healthy }) {
		others = append(others, attribute(AttributeGPUs, int64(f.GPUs)))
	}
	if len(f.Models) > 0 {
		others = append(others, attribute(AttributeModels, f.Models))
	}
	if len(f.Drivers) > 0 {
		others = append(others, attribute(AttributeDrivers, f.Drivers))
	}
	for _, name := range slices.Sorted(maps.Keys(a.o.Identity.Labels)) {
		others = append(others, attribute(LabelPrefix+name, a.o.Identity.Labels[name]))
	}
	return &protobufs.AgentDescription{IdentifyingAttributes: identifying, NonIdentifyingAttributes: others}
}

// health returns the component tree. The root is healthy if all parts are.
func (a *Agent) health(f *Facts, running *lists.Offer) *protobufs.ComponentHealth {
	list := component(&f.List)
	list.ComponentHealthMap = map[string]*protobufs.ComponentHealth{
		ListHash:    value(f.ListHash),
		ListOrigin:  value(running.Origin),
		ListApplied: value(strconv.FormatInt(f.AppliedSeconds, 10)),
	}
	if running.Origin == a.origin {
		list.ComponentHealthMap[ListRevision] = value(running.Revision)
	}
	root := group(map[string]*protobufs.ComponentHealth{
		HealthCollectors: components(f.Collectors),
		HealthDevices:    components(f.Devices),
		HealthList:       list,
		HealthGates:      a.gates(f),
	})
	root.StartTimeUnixNano = uint64(a.started.UnixNano())
	return root
}

// components returns a group of components.
func components(all []Component) *protobufs.ComponentHealth {
	m := make(map[string]*protobufs.ComponentHealth, len(all))
	for i := range all[:min(len(all), maxComponents)] {
		m[text(all[i].Name, maxText)] = component(&all[i])
	}
	return group(m)
}

// group returns a component that is healthy if all its parts are. Its error names the first unhealthy part.
func group(parts map[string]*protobufs.ComponentHealth) *protobufs.ComponentHealth {
	g := &protobufs.ComponentHealth{Healthy: true, Status: "up", ComponentHealthMap: parts}
	if len(parts) == 0 {
		g.Status = "none"
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if p := parts[name]; !p.Healthy {
			g.Healthy, g.Status = false, "impaired"
			g.LastError = text(name+": "+p.LastError, maxText)
			break
		}
	}
	return g
}

func component(c *Component) *protobufs.ComponentHealth {
	h := &protobufs.ComponentHealth{Healthy: c.Healthy, Status: text(c.Status, maxText)}
	if c.Healthy {
		return h // without a time, because the time of the last sample changes all the time
	}
	h.LastError = text(cmp.Or(c.Error, c.Status), maxText)
	if !c.Since.IsZero() {
		h.StatusTimeUnixNano = uint64(c.Since.UnixNano())
	}
	return h
}

// value returns a component that only carries a text.
func value(v string) *protobufs.ComponentHealth {
	return &protobufs.ComponentHealth{Healthy: true, Status: text(v, maxText)}
}

// gates returns the gates' numbers, each as a component's status. Unknown numbers are absent.
func (a *Agent) gates(f *Facts) *protobufs.ComponentHealth {
	m := map[string]*protobufs.ComponentHealth{
		GateStalled:      value(strconv.Itoa(f.Stalled)),
		GateLost:         value(strconv.Itoa(f.Lost)),
		GateMissedTicks:  value(strconv.FormatUint(f.MissedTicks, 10)),
		GateAbsentFields: value(strconv.Itoa(f.AbsentFields)),
	}
	if f.Series > 0 { // 0 is unknown; with it, every list would look like growth
		m[GateSeries] = value(strconv.Itoa(f.Series))
	}
	if f.SampleSeconds >= 0 {
		// It changes at every poll, and each change would send a message.
		if math.Abs(f.SampleSeconds-a.sampleSeconds) > a.sampleSeconds/4 {
			a.sampleSeconds = f.SampleSeconds
		}
		m[GateSampleSeconds] = value(strconv.FormatFloat(a.sampleSeconds, 'g', 3, 64))
	}
	return group(m)
}

// effectiveConfig returns the list in service, or nil if it is too long.
func effectiveConfig(running *lists.Offer) *protobufs.EffectiveConfig {
	if len(running.Content) > maxEffective {
		return nil
	}
	kind := "text/csv"
	if running.YAML {
		kind = "application/yaml"
	}
	return &protobufs.EffectiveConfig{ConfigMap: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
		ConfigName: {Body: running.Content, ContentType: kind},
	}}}
}

// applied returns the status of a list in service.
func applied(hash []byte) *protobufs.RemoteConfigStatus {
	return &protobufs.RemoteConfigStatus{LastRemoteConfigHash: hash, Status: protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED}
}

// failed returns the status of a list that is not in service. It has the hash of the tried list, because the server would
// offer that list again otherwise. The text names the running list.
func failed(hash []byte, why, running string) *protobufs.RemoteConfigStatus {
	why = text(why, maxReason) + "; the list in service stays, SHA-256 " + running
	return &protobufs.RemoteConfigStatus{LastRemoteConfigHash: hash, Status: protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED, ErrorMessage: why}
}

// statusOf converts an outcome to a status.
func statusOf(hash []byte, out *lists.Outcome) *protobufs.RemoteConfigStatus {
	switch out.Answer {
	case lists.Applied, lists.Unchanged:
		return applied(hash)
	case lists.Reported:
		return failed(hash, ReportOnly+": it would be applied", out.Running)
	}
	parts := []string{out.Err.Error()}
	for _, r := range out.Refused {
		if !strings.Contains(parts[0], r.Text) {
			parts = append(parts, r.String())
		}
	}
	return failed(hash, strings.Join(parts, "; "), out.Running)
}

// attribute returns an attribute whose value is a text, a list of texts, or a number.
func attribute[T string | []string | int64](name string, value T) *protobufs.KeyValue {
	v := &protobufs.AnyValue{}
	switch value := any(value).(type) {
	case string:
		v.Value = &protobufs.AnyValue_StringValue{StringValue: text(value, maxText)}
	case int64:
		v.Value = &protobufs.AnyValue_IntValue{IntValue: value}
	case []string:
		a := &protobufs.ArrayValue{}
		for _, s := range value {
			a.Values = append(a.Values, attribute("", s).Value)
		}
		v.Value = &protobufs.AnyValue_ArrayValue{ArrayValue: a}
	}
	return &protobufs.KeyValue{Key: name, Value: v}
}

// text returns s as valid UTF-8 of at most n bytes, which protobuf accepts.
func text(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
