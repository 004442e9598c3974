package nvml

// The calls about processes: three lists, and how busy. processes.h has the same.
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
	listCompute:  {{"nvmlDeviceGetComputeRunningProcesses_v3", 0, 510}, {"nvmlDeviceGetComputeRunningProcesses_v2", 0, 0}},
	listGraphics: {{"nvmlDeviceGetGraphicsRunningProcesses_v3", 0, 510}, {"nvmlDeviceGetGraphicsRunningProcesses_v2", 0, 0}},
	listMPS:      {{"nvmlDeviceGetMPSComputeRunningProcesses_v3", 0, 510}, {"nvmlDeviceGetMPSComputeRunningProcesses_v2", 0, 0}},
	askBusy:      {{"nvmlDeviceGetProcessesUtilizationInfo", 0, 550}, {"nvmlDeviceGetProcessUtilization", 0, 0}},
}
