package field

// Readings of NVIDIA's catalogue that rules use. docs/fields.md lists their names and units.
const (
	InfoROMValid            ID = 84
	SMClock                 ID = 100
	GPUTemperature          ID = 150
	TemperatureMargin       ID = 153 // to the temperature at which the GPU slows down (T.Limit)
	PowerUsage              ID = 155
	TotalEnergy             ID = 156
	SlowdownTemperature     ID = 158
	FabricManagerStatus     ID = 170
	FabricHealthMask        ID = 174
	FabricHealthSummary     ID = 175
	PCIeReplays             ID = 202
	GPUUtilization          ID = 203
	PCIeGeneration          ID = 237
	PCIeWidth               ID = 238
	PowerViolation          ID = 240
	ThermalViolation        ID = 241
	CorrectedErrors         ID = 310 // since the driver was loaded
	UncorrectedErrors       ID = 311 // since the driver was loaded
	CorrectedSRAMErrors     ID = 342 // since the driver was loaded
	SRAMThresholdExceeded   ID = 346
	SpareRowsNone           ID = 389 // banks
	RetiredPagesCorrected   ID = 390 // for single-bit errors
	RetiredPagesUncorrected ID = 391 // for double-bit errors
	RetiredPagesPending     ID = 392
	RemappedRows            ID = 393 // for uncorrected errors
	RowRemapFailure         ID = 395
	RowRemapPending         ID = 396
	SwitchFatalErrors       ID = 856
	SwitchLinkStatus        ID = 870
	EngineActive            ID = 1001
	SMActive                ID = 1002
	TensorActive            ID = 1004
	MemoryUnrepairable      ID = 1507
	RecoveryAction          ID = 1523

	// All links of a GPU, up to NVLink 4.
	NVLinksFlitErrors  ID = 409
	NVLinksDataErrors  ID = 419
	NVLinksReplays     ID = 429
	NVLinksRecoveries  ID = 439
	NVLinksCRCRate     ID = 497
	NVLinksRecoverRate ID = 498
	NVLinksReplayRate  ID = 499

	// All links of a GPU, from NVLink 5 on.
	NVLinks5Malformed         ID = 1204
	NVLinks5Overruns          ID = 1205
	NVLinks5Errors            ID = 1206
	NVLinks5RemoteErrors      ID = 1207
	NVLinks5GeneralErrors     ID = 1208
	NVLinks5IntegrityErrors   ID = 1209
	NVLinks5Recovered         ID = 1211
	NVLinks5RecoveriesFailed  ID = 1212
	NVLinks5Recoveries        ID = 1213
	NVLinks5SymbolErrors      ID = 1214
	NVLinks5SymbolBER         ID = 1216
	NVLinks5EffectiveBER      ID = 1218
	NVLinks5EffectiveErrors   ID = 1219
	NVLinks5UncorrectedErrors ID = 1220

	// One link, up to NVLink 4.
	PerLinkFlitErrors ID = 1525
	PerLinkDataErrors ID = 1526
	PerLinkReplays    ID = 1527
	PerLinkRecoveries ID = 1528
)
