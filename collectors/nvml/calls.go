package nvml

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

// shape is how a function is called and what it gives; batch.h describes each.
type shape uint8

const (
	shapeUint shape = iota
	shapeUintOf
	shapeUintPair
	shapeUint64
	shapeUint64Of2
	shapeUint64Of3
	shapeMask64
	shapeUtilization
	shapeMemory
	shapeMemoryV2
	shapeBAR1
	shapeCount
	shapeCountOf
	shapeMargin
	shapeSRAM
	shapeHistogram
	shapeUnrepairable
	shapeFabric
	shapeFabricV
	shapePlatform
	shapePCI
	shapeLicence
	shapeAffinity
	shapeAffinityOf
	shapeValid
	shapeGPMSupport
	shapeSystemInt
	shapeSystemCC
	shapeVGPUUint
	shapeVGPUUint64
	shapeVGPULicence
	numShapes
)

// results is how many results a call of the shape gives.
func (s shape) results() int {
	switch s {
	case shapeUintPair, shapeUtilization, shapePCI:
		return 2
	case shapeMemory, shapeBAR1, shapeFabric:
		return 3
	case shapeMemoryV2, shapeAffinity, shapeAffinityOf:
		return 4
	case shapeHistogram, shapeFabricV, shapePlatform:
		return 5
	}
	return 1
}

// generation is a function under one of its names.
type generation struct {
	symbol string
	shape  shape
	since  int // branch of the first driver that has it; 0 for those all supported ones have
}

// oldestDriver is the branch of the oldest driver that is supported.
const oldestDriver = 470

// functions are the names of the calls, newest first: the first that the library
// defines is used. The drivers are those whose nvml.h has the name first, by the
// versions that go-nvml kept (CUDA 11.0 of driver 450 to CUDA 13.3).
var functions = [numCalls][]generation{
	getFieldValues:          {{"nvmlDeviceGetFieldValues", 0, 0}},
	getTemperature:          {{"nvmlDeviceGetTemperature", shapeUintOf, 0}},
	getTemperatureThreshold: {{"nvmlDeviceGetTemperatureThreshold", shapeUintOf, 0}},
	getMarginTemperature:    {{"nvmlDeviceGetMarginTemperature", shapeMargin, 570}},
	getPowerUsage:           {{"nvmlDeviceGetPowerUsage", shapeUint, 0}},
	getPowerLimit:           {{"nvmlDeviceGetPowerManagementLimit", shapeUint, 0}},
	getPowerDefaultLimit:    {{"nvmlDeviceGetPowerManagementDefaultLimit", shapeUint, 0}},
	getPowerLimitRange:      {{"nvmlDeviceGetPowerManagementLimitConstraints", shapeUintPair, 0}},
	getEnforcedPowerLimit:   {{"nvmlDeviceGetEnforcedPowerLimit", shapeUint, 0}},
	getTotalEnergy:          {{"nvmlDeviceGetTotalEnergyConsumption", shapeUint64, 0}},
	getClockInfo:            {{"nvmlDeviceGetClockInfo", shapeUintOf, 0}},
	getMaxClockInfo:         {{"nvmlDeviceGetMaxClockInfo", shapeUintOf, 0}},
	getApplicationsClock:    {{"nvmlDeviceGetApplicationsClock", shapeUintOf, 0}},
	getClockEventReasons: {
		{"nvmlDeviceGetCurrentClocksEventReasons", shapeMask64, 535},
		{"nvmlDeviceGetCurrentClocksThrottleReasons", shapeMask64, 0},
	},
	getAutoBoost:          {{"nvmlDeviceGetAutoBoostedClocksEnabled", shapeUintPair, 0}},
	getUtilization:        {{"nvmlDeviceGetUtilizationRates", shapeUtilization, 0}},
	getEncoderUtilization: {{"nvmlDeviceGetEncoderUtilization", shapeUintPair, 0}},
	getDecoderUtilization: {{"nvmlDeviceGetDecoderUtilization", shapeUintPair, 0}},
	getJPGUtilization:     {{"nvmlDeviceGetJpgUtilization", shapeUintPair, 535}},
	getOFAUtilization:     {{"nvmlDeviceGetOfaUtilization", shapeUintPair, 535}},
	getComputeProcesses: {
		{"nvmlDeviceGetComputeRunningProcesses_v3", shapeCount, 510},
		{"nvmlDeviceGetComputeRunningProcesses_v2", shapeCount, 0},
	},
	getGraphicsProcesses: {
		{"nvmlDeviceGetGraphicsRunningProcesses_v3", shapeCount, 510},
		{"nvmlDeviceGetGraphicsRunningProcesses_v2", shapeCount, 0},
	},
	getMemoryInfo: {
		{"nvmlDeviceGetMemoryInfo_v2", shapeMemoryV2, 510},
		{"nvmlDeviceGetMemoryInfo", shapeMemory, 0},
	},
	getBAR1Info:           {{"nvmlDeviceGetBAR1MemoryInfo", shapeBAR1, 0}},
	getFanSpeed:           {{"nvmlDeviceGetFanSpeed", shapeUint, 0}},
	getPState:             {{"nvmlDeviceGetPerformanceState", shapeUint, 0}},
	getComputeMode:        {{"nvmlDeviceGetComputeMode", shapeUint, 0}},
	getPersistenceMode:    {{"nvmlDeviceGetPersistenceMode", shapeUint, 0}},
	getMIGMode:            {{"nvmlDeviceGetMigMode", shapeUintPair, 0}},
	getMaxMIGDevices:      {{"nvmlDeviceGetMaxMigDeviceCount", shapeUint, 0}},
	getECCMode:            {{"nvmlDeviceGetEccMode", shapeUintPair, 0}},
	getECCCount:           {{"nvmlDeviceGetMemoryErrorCounter", shapeUint64Of3, 0}},
	getSRAMErrors:         {{"nvmlDeviceGetSramEccErrorStatus", shapeSRAM, 550}},
	getRetiredPages:       {{"nvmlDeviceGetRetiredPages", shapeCountOf, 0}},
	getRowHistogram:       {{"nvmlDeviceGetRowRemapperHistogram", shapeHistogram, 0}},
	getUnrepairableMemory: {{"nvmlDeviceGetUnrepairableMemoryFlag_v1", shapeUnrepairable, 590}},
	getPCIeReplay:         {{"nvmlDeviceGetPcieReplayCounter", shapeUint, 0}},
	getPCIeGen:            {{"nvmlDeviceGetCurrPcieLinkGeneration", shapeUint, 0}},
	getPCIeWidth:          {{"nvmlDeviceGetCurrPcieLinkWidth", shapeUint, 0}},
	getPCIeMaxGen:         {{"nvmlDeviceGetMaxPcieLinkGeneration", shapeUint, 0}},
	getPCIeMaxWidth:       {{"nvmlDeviceGetMaxPcieLinkWidth", shapeUint, 0}},
	getPCIeThroughput:     {{"nvmlDeviceGetPcieThroughput", shapeUintOf, 0}},
	getPCIInfo:            {{"nvmlDeviceGetPciInfo_v3", shapePCI, 0}},
	getNVLinkErrors:       {{"nvmlDeviceGetNvLinkErrorCounter", shapeUint64Of2, 0}},
	getFabricInfo: {
		{"nvmlDeviceGetGpuFabricInfoV", shapeFabricV, 550},
		{"nvmlDeviceGetGpuFabricInfo", shapeFabric, 525},
	},
	getPlatformInfo:       {{"nvmlDeviceGetPlatformInfo", shapePlatform, 570}},
	getGridLicence:        {{"nvmlDeviceGetGridLicensableFeatures_v4", shapeLicence, 0}},
	getVirtualizationMode: {{"nvmlDeviceGetVirtualizationMode", shapeUint, 0}},
	getIndex:              {{"nvmlDeviceGetIndex", shapeUint, 0}},
	getMinorNumber:        {{"nvmlDeviceGetMinorNumber", shapeUint, 0}},
	getComputeCapability:  {{"nvmlDeviceGetCudaComputeCapability", shapeUintPair, 0}},
	getCPUAffinity:        {{"nvmlDeviceGetCpuAffinity", shapeAffinity, 0}},
	getMemoryAffinity:     {{"nvmlDeviceGetMemoryAffinity", shapeAffinityOf, 0}},
	getInforomChecksum:    {{"nvmlDeviceGetInforomConfigurationChecksum", shapeUint, 0}},
	getInforomValid:       {{"nvmlDeviceValidateInforom", shapeValid, 0}},
	getGPMSupport:         {{"nvmlGpmQueryDeviceSupport", shapeGPMSupport, 520}},
	getVGPUMemory:         {{"nvmlVgpuInstanceGetFbUsage", shapeVGPUUint64, 0}},
	getVGPUType:           {{"nvmlVgpuInstanceGetType", shapeVGPUUint, 0}},
	getVGPUFrameRate:      {{"nvmlVgpuInstanceGetFrameRateLimit", shapeVGPUUint, 0}},
	getVGPUInstance:       {{"nvmlVgpuInstanceGetGpuInstanceId", shapeVGPUUint, 0}},
	getVGPULicence: {
		{"nvmlVgpuInstanceGetLicenseInfo_v2", shapeVGPULicence, 510},
		{"nvmlVgpuInstanceGetLicenseStatus", shapeVGPUUint, 0},
	},
	getActiveVGPUs: {{"nvmlDeviceGetActiveVgpus", shapeCount, 0}}, // see vgpuPart
	getCCState:     {{"nvmlSystemGetConfComputeState", shapeSystemCC, 535}},
	getDeviceCount: {{"nvmlDeviceGetCount_v2", shapeSystemInt, 0}},
	getCUDAVersion: {{"nvmlSystemGetCudaDriverVersion_v2", shapeSystemInt, 0}},
}

// name is the newest name of the call.
func (c call) name() string { return functions[c][0].symbol }
