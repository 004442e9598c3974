//go:build linux && cgo

package nvml

import (
	"maps"
	"slices"
)

// introduced lists the functions of NVML that this package names, with the driver
// branch that brought each; 450 stands for that and earlier. It follows the history
// of nvml.h in https://github.com/NVIDIA/go-nvml/commits/main/gen/nvml/nvml.h, by
// the CUDA toolkit that a version of it came with. Whether a library has a function
// is asked of the library; this is for people.
func introduced() map[string]int {
	return map[string]int{
		"nvmlDeviceGetApplicationsClock":               450,
		"nvmlDeviceGetArchitecture":                    450,
		"nvmlDeviceGetAttributes_v2":                   455,
		"nvmlDeviceGetAutoBoostedClocksEnabled":        450,
		"nvmlDeviceGetBAR1MemoryInfo":                  450,
		"nvmlDeviceGetBrand":                           450,
		"nvmlDeviceGetClockInfo":                       450,
		"nvmlDeviceGetComputeInstanceId":               450,
		"nvmlDeviceGetComputeMode":                     450,
		"nvmlDeviceGetComputeRunningProcesses_v2":      455,
		"nvmlDeviceGetComputeRunningProcesses_v3":      510,
		"nvmlDeviceGetCount_v2":                        450,
		"nvmlDeviceGetCpuAffinity":                     450,
		"nvmlDeviceGetCudaComputeCapability":           450,
		"nvmlDeviceGetCurrPcieLinkGeneration":          450,
		"nvmlDeviceGetCurrPcieLinkWidth":               450,
		"nvmlDeviceGetCurrentClocksEventReasons":       535,
		"nvmlDeviceGetCurrentClocksThrottleReasons":    450,
		"nvmlDeviceGetDecoderUtilization":              450,
		"nvmlDeviceGetEccMode":                         450,
		"nvmlDeviceGetEncoderUtilization":              450,
		"nvmlDeviceGetEnforcedPowerLimit":              450,
		"nvmlDeviceGetFanSpeed":                        450,
		"nvmlDeviceGetFieldValues":                     450,
		"nvmlDeviceGetGpuFabricInfo":                   525,
		"nvmlDeviceGetGpuFabricInfoV":                  550,
		"nvmlDeviceGetGpuInstanceId":                   450,
		"nvmlDeviceGetGraphicsRunningProcesses_v2":     455,
		"nvmlDeviceGetGraphicsRunningProcesses_v3":     510,
		"nvmlDeviceGetGridLicensableFeatures_v4":       470,
		"nvmlDeviceGetHandleByIndex":                   450,
		"nvmlDeviceGetHandleByIndex_v2":                450,
		"nvmlDeviceGetIndex":                           450,
		"nvmlDeviceGetInforomConfigurationChecksum":    450,
		"nvmlDeviceGetInforomImageVersion":             450,
		"nvmlDeviceGetInforomVersion":                  450,
		"nvmlDeviceGetJpgUtilization":                  535,
		"nvmlDeviceGetMarginTemperature":               570,
		"nvmlDeviceGetMaxClockInfo":                    450,
		"nvmlDeviceGetMaxMigDeviceCount":               450,
		"nvmlDeviceGetMaxPcieLinkGeneration":           450,
		"nvmlDeviceGetMaxPcieLinkWidth":                450,
		"nvmlDeviceGetMemoryAffinity":                  450,
		"nvmlDeviceGetMemoryErrorCounter":              450,
		"nvmlDeviceGetMemoryInfo":                      450,
		"nvmlDeviceGetMemoryInfo_v2":                   510,
		"nvmlDeviceGetMigDeviceHandleByIndex":          450,
		"nvmlDeviceGetMigMode":                         450,
		"nvmlDeviceGetMinorNumber":                     450,
		"nvmlDeviceGetName":                            450,
		"nvmlDeviceGetNvLinkErrorCounter":              450,
		"nvmlDeviceGetNvLinkState":                     450,
		"nvmlDeviceGetOfaUtilization":                  535,
		"nvmlDeviceGetP2PStatus":                       450,
		"nvmlDeviceGetPciInfo_v3":                      450,
		"nvmlDeviceGetPcieReplayCounter":               450,
		"nvmlDeviceGetPcieThroughput":                  450,
		"nvmlDeviceGetPerformanceState":                450,
		"nvmlDeviceGetPersistenceMode":                 450,
		"nvmlDeviceGetPlatformInfo":                    570,
		"nvmlDeviceGetPowerManagementDefaultLimit":     450,
		"nvmlDeviceGetPowerManagementLimit":            450,
		"nvmlDeviceGetPowerManagementLimitConstraints": 450,
		"nvmlDeviceGetPowerUsage":                      450,
		"nvmlDeviceGetRetiredPages":                    450,
		"nvmlDeviceGetRowRemapperHistogram":            455,
		"nvmlDeviceGetSerial":                          450,
		"nvmlDeviceGetSramEccErrorStatus":              550,
		"nvmlDeviceGetSupportedEventTypes":             450,
		"nvmlDeviceGetTemperature":                     450,
		"nvmlDeviceGetTemperatureThreshold":            450,
		"nvmlDeviceGetTotalEnergyConsumption":          450,
		"nvmlDeviceGetUUID":                            450,
		"nvmlDeviceGetUnrepairableMemoryFlag_v1":       590,
		"nvmlDeviceGetUtilizationRates":                450,
		"nvmlDeviceGetVbiosVersion":                    450,
		"nvmlDeviceGetVirtualizationMode":              450,
		"nvmlDeviceRegisterEvents":                     450,
		"nvmlDeviceValidateInforom":                    450,
		"nvmlErrorString":                              450,
		"nvmlEventSetCreate":                           450,
		"nvmlEventSetFree":                             450,
		"nvmlEventSetWait_v2":                          450,
		"nvmlGpmMetricsGet":                            520,
		"nvmlGpmMigSampleGet":                          525,
		"nvmlGpmQueryDeviceSupport":                    520,
		"nvmlGpmSampleAlloc":                           520,
		"nvmlGpmSampleFree":                            520,
		"nvmlGpmSampleGet":                             520,
		"nvmlInitWithFlags":                            450,
		"nvmlInit_v2":                                  450,
		"nvmlShutdown":                                 450,
		"nvmlSystemGetConfComputeState":                535,
		"nvmlSystemGetCudaDriverVersion_v2":            450,
		"nvmlSystemGetDriverVersion":                   450,
		"nvmlSystemGetNVMLVersion":                     450,
	}
}

// lackingIn are those that a library lacks, in the order of their names.
func lackingIn(has func(symbol string) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(introduced())), has)
}
