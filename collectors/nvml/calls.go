package nvml

import "slices"

// call is a function of NVML, or several generations of one, as the collector
// uses them on each tick.
type call uint8

const (
	noCall         call = iota
	getFieldValues      // nvmlDeviceGetFieldValues; arguments are field and scope
	getTemperature
	getTemperatureThreshold
	getMarginTemperature
	getPowerUsage
	getPowerLimit
	getPowerDefaultLimit
	getPowerLimitRange
	getEnforcedPowerLimit
	getTotalEnergy
	getClockInfo
	getMaxClockInfo
	getApplicationsClock
	getClockEventReasons
	getAutoBoost
	getUtilization
	getEncoderUtilization
	getDecoderUtilization
	getJPGUtilization
	getOFAUtilization
	getComputeProcesses
	getGraphicsProcesses
	getMemoryInfo
	getBAR1Info
	getFanSpeed
	getPState
	getComputeMode
	getPersistenceMode
	getMIGMode
	getMaxMIGDevices
	getECCMode
	getECCCount
	getSRAMErrors
	getRetiredPages
	getRowHistogram
	getUnrepairableMemory
	getPCIeReplay
	getPCIeGen
	getPCIeWidth
	getPCIeMaxGen
	getPCIeMaxWidth
	getPCIeThroughput
	getPCIInfo
	getNVLinkErrors
	getFabricInfo
	getFabricSummary
	getPlatformInfo
	getGridLicence
	getVirtualizationMode
	getIndex
	getMinorNumber
	getComputeCapability
	getCPUAffinity
	getMemoryAffinity
	getInforomChecksum
	getInforomValid
	getGPMSupport
	getCCState
	getVGPUMemory
	getVGPUType
	getVGPUFrameRate
	getVGPUInstance
	getVGPULicence
	getActiveVGPUs
	getDeviceCount
	getCUDAVersion
	numCalls
)

// generation is a function under one of its names.
type generation struct {
	symbol  string
	results int // how many results a call gives
	args    int // how many arguments choose what is read
	since   int // branch of the first driver that has it; 0 for those all supported ones have
}

// oldestDriver is the branch of the oldest driver that is supported.
const oldestDriver = 470

// functions are the names of the calls, newest first: the first that the library
// defines is used. The drivers are those whose nvml.h has the name first, by the
// versions that go-nvml kept (CUDA 11.0 of driver 450 to CUDA 13.3).
var functions = [numCalls][]generation{
	getFieldValues:          {{"nvmlDeviceGetFieldValues", 1, 0, 0}},
	getTemperature:          {{"nvmlDeviceGetTemperature", 1, 1, 0}},
	getTemperatureThreshold: {{"nvmlDeviceGetTemperatureThreshold", 1, 1, 0}},
	getMarginTemperature:    {{"nvmlDeviceGetMarginTemperature", 1, 0, 570}},
	getPowerUsage:           {{"nvmlDeviceGetPowerUsage", 1, 0, 0}},
	getPowerLimit:           {{"nvmlDeviceGetPowerManagementLimit", 1, 0, 0}},
	getPowerDefaultLimit:    {{"nvmlDeviceGetPowerManagementDefaultLimit", 1, 0, 0}},
	getPowerLimitRange:      {{"nvmlDeviceGetPowerManagementLimitConstraints", 2, 0, 0}},
	getEnforcedPowerLimit:   {{"nvmlDeviceGetEnforcedPowerLimit", 1, 0, 0}},
	getTotalEnergy:          {{"nvmlDeviceGetTotalEnergyConsumption", 1, 0, 0}},
	getClockInfo:            {{"nvmlDeviceGetClockInfo", 1, 1, 0}},
	getMaxClockInfo:         {{"nvmlDeviceGetMaxClockInfo", 1, 1, 0}},
	getApplicationsClock:    {{"nvmlDeviceGetApplicationsClock", 1, 1, 0}},
	getClockEventReasons: {
		{"nvmlDeviceGetCurrentClocksEventReasons", 1, 0, 535},
		{"nvmlDeviceGetCurrentClocksThrottleReasons", 1, 0, 0},
	},
	getAutoBoost:          {{"nvmlDeviceGetAutoBoostedClocksEnabled", 2, 0, 0}},
	getUtilization:        {{"nvmlDeviceGetUtilizationRates", 2, 0, 0}},
	getEncoderUtilization: {{"nvmlDeviceGetEncoderUtilization", 2, 0, 0}},
	getDecoderUtilization: {{"nvmlDeviceGetDecoderUtilization", 2, 0, 0}},
	getJPGUtilization:     {{"nvmlDeviceGetJpgUtilization", 2, 0, 535}},
	getOFAUtilization:     {{"nvmlDeviceGetOfaUtilization", 2, 0, 535}},
	getComputeProcesses: {
		{"nvmlDeviceGetComputeRunningProcesses_v3", 1, 0, 510},
		{"nvmlDeviceGetComputeRunningProcesses_v2", 1, 0, 0},
	},
	getGraphicsProcesses: {
		{"nvmlDeviceGetGraphicsRunningProcesses_v3", 1, 0, 510},
		{"nvmlDeviceGetGraphicsRunningProcesses_v2", 1, 0, 0},
	},
	getMemoryInfo: {
		{"nvmlDeviceGetMemoryInfo_v2", 4, 0, 510},
		{"nvmlDeviceGetMemoryInfo", 3, 0, 0},
	},
	getBAR1Info:           {{"nvmlDeviceGetBAR1MemoryInfo", 3, 0, 0}},
	getFanSpeed:           {{"nvmlDeviceGetFanSpeed", 1, 0, 0}},
	getPState:             {{"nvmlDeviceGetPerformanceState", 1, 0, 0}},
	getComputeMode:        {{"nvmlDeviceGetComputeMode", 1, 0, 0}},
	getPersistenceMode:    {{"nvmlDeviceGetPersistenceMode", 1, 0, 0}},
	getMIGMode:            {{"nvmlDeviceGetMigMode", 2, 0, 0}},
	getMaxMIGDevices:      {{"nvmlDeviceGetMaxMigDeviceCount", 1, 0, 0}},
	getECCMode:            {{"nvmlDeviceGetEccMode", 2, 0, 0}},
	getECCCount:           {{"nvmlDeviceGetMemoryErrorCounter", 1, 3, 0}},
	getSRAMErrors:         {{"nvmlDeviceGetSramEccErrorStatus", 1, 0, 550}},
	getRetiredPages:       {{"nvmlDeviceGetRetiredPages", 1, 1, 0}},
	getRowHistogram:       {{"nvmlDeviceGetRowRemapperHistogram", 5, 0, 0}},
	getUnrepairableMemory: {{"nvmlDeviceGetUnrepairableMemoryFlag_v1", 1, 0, 590}},
	getPCIeReplay:         {{"nvmlDeviceGetPcieReplayCounter", 1, 0, 0}},
	getPCIeGen:            {{"nvmlDeviceGetCurrPcieLinkGeneration", 1, 0, 0}},
	getPCIeWidth:          {{"nvmlDeviceGetCurrPcieLinkWidth", 1, 0, 0}},
	getPCIeMaxGen:         {{"nvmlDeviceGetMaxPcieLinkGeneration", 1, 0, 0}},
	getPCIeMaxWidth:       {{"nvmlDeviceGetMaxPcieLinkWidth", 1, 0, 0}},
	getPCIeThroughput:     {{"nvmlDeviceGetPcieThroughput", 1, 1, 0}},
	getPCIInfo:            {{"nvmlDeviceGetPciInfo_v3", 2, 0, 0}},
	getNVLinkErrors:       {{"nvmlDeviceGetNvLinkErrorCounter", 1, 2, 0}},
	getFabricInfo: {
		{"nvmlDeviceGetGpuFabricInfoV", 4, 0, 550},
		{"nvmlDeviceGetGpuFabricInfo", 3, 0, 525},
	},
	getFabricSummary:      {{"nvmlDeviceGetGpuFabricInfoV", 1, 0, 580}}, // its third version
	getPlatformInfo:       {{"nvmlDeviceGetPlatformInfo", 5, 0, 570}},
	getGridLicence:        {{"nvmlDeviceGetGridLicensableFeatures_v4", 1, 0, 0}},
	getVirtualizationMode: {{"nvmlDeviceGetVirtualizationMode", 1, 0, 0}},
	getIndex:              {{"nvmlDeviceGetIndex", 1, 0, 0}},
	getMinorNumber:        {{"nvmlDeviceGetMinorNumber", 1, 0, 0}},
	getComputeCapability:  {{"nvmlDeviceGetCudaComputeCapability", 2, 0, 0}},
	getCPUAffinity:        {{"nvmlDeviceGetCpuAffinity", 4, 0, 0}},
	getMemoryAffinity:     {{"nvmlDeviceGetMemoryAffinity", 4, 0, 0}},
	getInforomChecksum:    {{"nvmlDeviceGetInforomConfigurationChecksum", 1, 0, 0}},
	getInforomValid:       {{"nvmlDeviceValidateInforom", 1, 0, 0}},
	getGPMSupport:         {{"nvmlGpmQueryDeviceSupport", 1, 0, 520}},
	getVGPUMemory:         {{"nvmlVgpuInstanceGetFbUsage", 1, 0, 0}},
	getVGPUType:           {{"nvmlVgpuInstanceGetType", 1, 0, 0}},
	getVGPUFrameRate:      {{"nvmlVgpuInstanceGetFrameRateLimit", 1, 0, 0}},
	getVGPUInstance:       {{"nvmlVgpuInstanceGetGpuInstanceId", 1, 0, 0}},
	getVGPULicence: {
		{"nvmlVgpuInstanceGetLicenseInfo_v2", 1, 0, 510},
		{"nvmlVgpuInstanceGetLicenseStatus", 1, 0, 0},
	},
	getActiveVGPUs: {{"nvmlDeviceGetActiveVgpus", 1, 0, 0}}, // see vgpuPart
	getCCState:     {{"nvmlSystemGetConfComputeState", 1, 0, 535}},
	getDeviceCount: {{"nvmlDeviceGetCount_v2", 1, 0, 0}},
	getCUDAVersion: {{"nvmlSystemGetCudaDriverVersion_v2", 1, 0, 0}},
}

// name is the newest name of the call.
func (c call) name() string { return functions[c][0].symbol }

// The calls about processes: three lists, and how busy each process is.
const (
	listCompute = iota
	listGraphics
	listMPS
	numLists
	askBusy = numLists
	numAsks = askBusy + 1
)

// processCalls are the names of each, newest first.
var processCalls = [numAsks][2]generation{
	listCompute:  {{"nvmlDeviceGetComputeRunningProcesses_v3", 0, 0, 510}, {"nvmlDeviceGetComputeRunningProcesses_v2", 0, 0, 0}},
	listGraphics: {{"nvmlDeviceGetGraphicsRunningProcesses_v3", 0, 0, 510}, {"nvmlDeviceGetGraphicsRunningProcesses_v2", 0, 0, 0}},
	listMPS:      {{"nvmlDeviceGetMPSComputeRunningProcesses_v3", 0, 0, 510}, {"nvmlDeviceGetMPSComputeRunningProcesses_v2", 0, 0, 0}},
	askBusy:      {{"nvmlDeviceGetProcessesUtilizationInfo", 0, 0, 550}, {"nvmlDeviceGetProcessUtilization", 0, 0, 0}},
}

// otherSymbols are the functions that this package names outside of the tables above:
// those of discovery, labels, events, links and GPM.
var otherSymbols = [...]string{
	"nvmlDeviceGetArchitecture",
	"nvmlDeviceGetAttributes_v2",
	"nvmlDeviceGetBrand",
	"nvmlDeviceGetComputeInstanceId",
	"nvmlDeviceGetGpuInstanceId",
	"nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetInforomImageVersion",
	"nvmlDeviceGetInforomVersion",
	"nvmlDeviceGetMigDeviceHandleByIndex",
	"nvmlDeviceGetName",
	"nvmlDeviceGetNvLinkState",
	"nvmlDeviceGetP2PStatus",
	"nvmlDeviceGetSerial",
	"nvmlDeviceGetSupportedEventTypes",
	"nvmlDeviceGetUUID",
	"nvmlDeviceGetVbiosVersion",
	"nvmlDeviceRegisterEvents",
	"nvmlErrorString",
	"nvmlEventSetCreate",
	"nvmlEventSetFree",
	"nvmlEventSetWait_v2",
	"nvmlGpmMetricsGet",
	"nvmlGpmMigSampleGet",
	"nvmlGpmSampleAlloc",
	"nvmlGpmSampleFree",
	"nvmlGpmSampleGet",
	"nvmlInitWithFlags",
	"nvmlInit_v2",
	"nvmlShutdown",
	"nvmlSystemGetDriverVersion",
	"nvmlSystemGetNVMLVersion",
	"nvmlVgpuInstanceGetUUID",
}

// symbols are all functions of NVML that this package calls, in the order of their
// names. Each is looked up before its first call: go-nvml binds lazily, and the
// loader ends the process at a call of a symbol that the library lacks.
func symbols() []string {
	out := slices.Clone(otherSymbols[:])
	for _, table := range slices.Concat(functions[:], [][]generation{processCalls[0][:], processCalls[1][:], processCalls[2][:], processCalls[3][:]}) {
		for _, g := range table {
			out = append(out, g.symbol)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
