package field

// Readings that only AMD SMI has.
const (
	AMDRecords      ID = 10500 + iota // by severity
	AMDRecordTime                     // by severity
	AMDRecordAge                      // by severity
	AMDAFID                           // by index, severity
	AMDMemoryWidth                    //
	AMDManufacturer                   // a text, as the next six
	AMDFRU
	AMDVBIOSName
	AMDVBIOSDate
	AMDVBIOSPart
	AMDMemoryKind
	AMDMemoryMaker
	AMDRecordsUndated // by severity
)

// amdSMIFields lists these fields by ascending id.
var amdSMIFields = [...]Descriptor{
	{ID: AMDRecords, Name: "amd_gpu_cper_records", Kind: Int64, Level: GPU, Cost: Slow, Max: 1e6, Help: "Records of errors (CPER) that the driver keeps, by severity: fatal, non_fatal_uncorrected, non_fatal_corrected"},
	{ID: AMDRecordTime, Name: "amd_gpu_cper_timestamp_seconds", Kind: Int64, Level: GPU, Unit: "s", Cost: Slow, Max: maxSeconds, Help: "Time of the newest record of errors by severity, in Unix seconds"},
	{ID: AMDRecordAge, Name: "amd_gpu_cper_age_seconds", Kind: Double, Level: GPU, Unit: "s", Cost: Slow, Max: maxSeconds, Help: "Age of the newest record of errors by severity"},
	{ID: AMDAFID, Name: "amd_gpu_cper_afid", Kind: Int64, Level: GPU, Cost: Slow, Max: 1e6, Help: "AMD field ids of the newest record of errors, by severity and index: 0 to 11"},
	{ID: AMDMemoryWidth, Name: "amd_gpu_memory_bus_width_bits", Kind: Int64, Level: GPU, Unit: "bits", Cost: Slow, Max: 1e6, Help: "Width of the memory bus"},
	{ID: AMDManufacturer, Name: "amd_gpu_board_manufacturer", Kind: String, Level: GPU, Cost: Static, Help: "Manufacturer of the board"},
	{ID: AMDFRU, Name: "amd_gpu_board_fru_id", Kind: String, Level: GPU, Cost: Static, Help: "Id of the board as a replaceable unit"},
	{ID: AMDVBIOSName, Name: "amd_gpu_vbios_name", Kind: String, Level: GPU, Cost: Static, Help: "Name of the VBIOS"},
	{ID: AMDVBIOSDate, Name: "amd_gpu_vbios_build_date", Kind: String, Level: GPU, Cost: Static, Help: "Date of the VBIOS"},
	{ID: AMDVBIOSPart, Name: "amd_gpu_vbios_part_number", Kind: String, Level: GPU, Cost: Static, Help: "Part number of the VBIOS"},
	{ID: AMDMemoryKind, Name: "amd_gpu_memory_type", Kind: String, Level: GPU, Cost: Static, Help: "Kind of memory: HBM3, GDDR6"},
	{ID: AMDMemoryMaker, Name: "amd_gpu_memory_vendor", Kind: String, Level: GPU, Cost: Static, Help: "Manufacturer of the memory"},
	{ID: AMDRecordsUndated, Name: "amd_gpu_cper_undated", Kind: Int64, Level: GPU, Cost: Slow, Max: 1, Help: "1 if the driver keeps records of errors of that severity and none has a valid time"},
}
