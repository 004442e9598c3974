package rocm

import "warpgauge/pkg/field"

// DCGM's ids of what AMD's GPUs have, see dcgm_fields.h.
const (
	dcgmCount            field.ID = 4
	dcgmIndex            field.ID = 52
	dcgmMinor            field.ID = 55
	dcgmSMClock          field.ID = 100
	dcgmMemClock         field.ID = 101
	dcgmVideoClock       field.ID = 102
	dcgmMaxSMClock       field.ID = 113
	dcgmMaxMemClock      field.ID = 114
	dcgmMaxVideoClock    field.ID = 115
	dcgmMemoryTemp       field.ID = 140
	dcgmGPUTemp          field.ID = 150
	dcgmPower            field.ID = 155
	dcgmEnergy           field.ID = 156
	dcgmPowerInstant     field.ID = 157
	dcgmSlowdownTemp     field.ID = 158
	dcgmShutdownTemp     field.ID = 159
	dcgmPowerLimit       field.ID = 160
	dcgmPowerLimitMin    field.ID = 161
	dcgmPowerLimitMax    field.ID = 162
	dcgmPowerLimitDef    field.ID = 163
	dcgmPowerEnforced    field.ID = 164
	dcgmFan              field.ID = 191
	dcgmPCIeTxKB         field.ID = 200
	dcgmPCIeRxKB         field.ID = 201
	dcgmReplays          field.ID = 202
	dcgmGPUUtil          field.ID = 203
	dcgmMemUtil          field.ID = 204
	dcgmEncUtil          field.ID = 206
	dcgmDecUtil          field.ID = 207
	dcgmMaxLinkGen       field.ID = 235
	dcgmMaxLinkWidth     field.ID = 236
	dcgmLinkGen          field.ID = 237
	dcgmLinkWidth        field.ID = 238
	dcgmPowerViolation   field.ID = 240
	dcgmThermalViolation field.ID = 241
	dcgmFBTotal          field.ID = 250
	dcgmFBFree           field.ID = 251
	dcgmFBUsed           field.ID = 252
	dcgmFBUsedRatio      field.ID = 254
	dcgmSBE              field.ID = 310
	dcgmDBE              field.ID = 311
	dcgmRetired          field.ID = 391
	dcgmRetiredPending   field.ID = 392
	dcgmRemapFailure     field.ID = 395
	dcgmLinksTotal       field.ID = 449
	dcgmLinksTx          field.ID = 843
	dcgmLinksRx          field.ID = 897
	dcgmEngineActive     field.ID = 1001
	dcgmDRAMActive       field.ID = 1005
	dcgmPCIeTx           field.ID = 1009
	dcgmPCIeRx           field.ID = 1010
	dcgmLinksTxBytes     field.ID = 1011
	dcgmLinksRxBytes     field.ID = 1012
	dcgmLink             field.ID = 1529
	dcgmLinkTx           field.ID = 1530
	dcgmLinkRx           field.ID = 1531

	// Texts.
	dcgmDriver field.ID = 1
	dcgmName   field.ID = 50
	dcgmBrand  field.ID = 51
	dcgmSerial field.ID = 53
	dcgmUUID   field.ID = 54
	dcgmPCI    field.ID = 57
	dcgmVBIOS  field.ID = 85
)
