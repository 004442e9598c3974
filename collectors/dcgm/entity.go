package dcgm

// entityKind is DCGM's dcgm_field_entity_group_t.
type entityKind int32

const (
	kindNone     entityKind = 0 // the node
	kindGPU      entityKind = 1
	kindVGPU     entityKind = 2
	kindSwitch   entityKind = 3
	kindInstance entityKind = 4 // GPU instance of MIG
	kindCompute  entityKind = 5 // compute instance of MIG
	kindLink     entityKind = 6 // of a GPU or a switch; the id is a linkID
	kindCPU      entityKind = 7
	kindCore     entityKind = 8
	kindConnectX entityKind = 9
)

func (k entityKind) String() string {
	names := [...]string{"node", "GPU", "vGPU", "switch", "GPU instance", "compute instance", "link", "CPU", "core", "ConnectX"}
	if k < 0 || int(k) >= len(names) {
		return "entity"
	}
	return names[k]
}

// entity is one thing that DCGM has values of. Its memory is that of
// dcgmGroupEntityPair_t.
type entity struct {
	kind entityKind
	id   uint32
}

// cell is one value as the engine has it. Its memory is that of wg_cell.
type cell struct {
	value  float64 // NaN: blank, refused, not a number
	micros int64   // when the engine read it, Unix µs; 0 never
	status status
	_      int32
}

// migEntity is a GPU or compute instance and where it belongs.
type migEntity struct {
	entity, parent entity
	uuid           string // of the GPU
	gpuIndex       uint32 // NVML's
	instance       uint32 // NVML's GPU instance id
	compute        uint32 // NVML's compute instance id; all ones for a GPU instance
	slices         uint32
}

// linkState is DCGM's dcgmNvLinkLinkState_t.
type linkState int32

const (
	linkAbsent   linkState = 0
	linkDisabled linkState = 1
	linkDown     linkState = 2
	linkUp       linkState = 3
)

// links are the states of the links of one GPU or switch, by their number.
type links struct {
	owner  entity
	states []linkState
}

// metricGroup are profiling fields that can be watched together.
type metricGroup struct {
	major, minor uint16
	fields       []uint16
}

// incident is something that DCGM's health checks found.
type incident struct {
	entity entity
	system uint32 // DCGM_HEALTH_WATCH_…: one bit, or all
	health int32  // 0 pass, 10 warn, 20 fail
	code   uint32 // DCGM_FR_…
}

// cpu is a CPU and the numbers of its cores.
type cpu struct {
	id    uint32
	cores []uint32
}
