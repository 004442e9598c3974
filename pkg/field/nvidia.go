package field

// FirstNVIDIA is where the ids begin of what NVIDIA's driver tells and DCGM has no
// field for. Names and units follow Prometheus.
const FirstNVIDIA ID = 9500

// The fields of nvidiaFields.
const (
	NVIDIAJPEGBusy = FirstNVIDIA + iota
	NVIDIAOFABusy
	NVIDIAComputeProcesses
	NVIDIAGraphicsProcesses
)

// nvidiaFields are by ascending id.
var nvidiaFields = [...]Descriptor{
	{ID: NVIDIAJPEGBusy, Name: "nvidia_gpu_jpeg_busy_ratio", Kind: Double, Level: GPU, Unit: "ratio", Max: 1.1, Help: "Utilisation of the JPEG engines"},
	{ID: NVIDIAOFABusy, Name: "nvidia_gpu_ofa_busy_ratio", Kind: Double, Level: GPU, Unit: "ratio", Max: 1.1, Help: "Utilisation of the optical flow engines"},
	{ID: NVIDIAComputeProcesses, Name: "nvidia_gpu_compute_processes", Kind: Int64, Level: Instance, Max: 1e6, Help: "Processes that compute on the GPU"},
	{ID: NVIDIAGraphicsProcesses, Name: "nvidia_gpu_graphics_processes", Kind: Int64, Level: Instance, Max: 1e6, Help: "Processes that draw on the GPU"},
}
