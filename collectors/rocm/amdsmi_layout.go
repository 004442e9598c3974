package rocm

import (
	"cmp"
	"fmt"
)

// amdVersion is a library version. Up to ROCm 6.3 its first number was a year.
type amdVersion struct{ Major, Minor uint32 }

func (v amdVersion) String() string {
	if v == (amdVersion{}) {
		return "of unknown version"
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

func (v amdVersion) compare(o amdVersion) int {
	return cmp.Or(cmp.Compare(v.Major, o.Major), cmp.Compare(v.Minor, o.Minor))
}

// versionOf decodes an amdsmi_version_t: year, major, minor, release. Releases since 25.3 have no year. 25.2 reports "25
// 25 2".
func versionOf(word *[4]uint32) amdVersion {
	if word[0] == word[1] {
		return amdVersion{word[1], word[2]}
	}
	return amdVersion{word[0], word[1]}
}

// textAt locates a text in a structure: offset and size.
type textAt struct{ at, size int }

// amdLayout describes the parts that we read of some releases' structures. The C compiler computed sizes and offsets from
// the release's amdsmi.h (github.com/ROCm/amdsmi, and projects/amdsmi of ROCm/rocm-systems, for x86-64 and arm64).
// Nothing reads beyond a size. A size of 0 means that the release lacks the structure.
type amdLayout struct {
	rocm        string
	first, last amdVersion

	board                        int // amdsmi_board_info_t
	number, fru, manufacturer    textAt
	vbios                        int // amdsmi_vbios_info_t
	vbiosName, vbiosDate, partNo textAt
	vram                         int // amdsmi_vram_info_t: the memory kind is a number at offset 0
	maker                        textAt
	makerNumber                  bool // the maker is a number instead of a text
	width, bandwidth             int  // 0: missing
}

// amdLayouts is ordered by version. Releases between 25.2 and 26.1 have no layout, because we found no headers of them.
var amdLayouts = [...]amdLayout{
	{
		rocm: "6.1", first: amdVersion{24, 5}, last: amdVersion{24, 5},
		board: 384, number: textAt{0, 32}, fru: textAt{64, 32}, manufacturer: textAt{224, 32},
		vbios: 256, vbiosName: textAt{0, 64}, vbiosDate: textAt{64, 32}, partNo: textAt{96, 64},
		vram: 16, maker: textAt{4, 4}, makerNumber: true,
	},
	{
		rocm: "6.2", first: amdVersion{24, 6}, last: amdVersion{24, 6},
		board: 768, number: textAt{0, 256}, fru: textAt{288, 32}, manufacturer: textAt{576, 64},
		vbios: 256, vbiosName: textAt{0, 64}, vbiosDate: textAt{64, 32}, partNo: textAt{96, 64},
		vram: 64, maker: textAt{4, 4}, makerNumber: true,
	},
	{
		rocm: "6.3", first: amdVersion{24, 7}, last: amdVersion{25, 1},
		board: 768, number: textAt{0, 256}, fru: textAt{288, 32}, manufacturer: textAt{576, 64},
		vbios: 256, vbiosName: textAt{0, 64}, vbiosDate: textAt{64, 32}, partNo: textAt{96, 64},
		vram: 64, maker: textAt{4, 4}, makerNumber: true, width: 16,
	},
	{
		rocm: "6.4", first: amdVersion{25, 2}, last: amdVersion{25, 2},
		board: 1536, number: textAt{0, 256}, fru: textAt{512, 256}, manufacturer: textAt{1024, 256},
		vbios: 1056, vbiosName: textAt{0, 256}, vbiosDate: textAt{256, 32}, partNo: textAt{288, 256},
		vram: 64, maker: textAt{4, 4}, makerNumber: true, width: 16, bandwidth: 24,
	},
	{
		rocm: "7.1 to 7.14, 10.0, 10.1", first: amdVersion{26, 1}, last: amdVersion{27, 1},
		board: 1792, number: textAt{0, 256}, fru: textAt{512, 256}, manufacturer: textAt{1024, 256},
		vbios: 1568, vbiosName: textAt{0, 256}, vbiosDate: textAt{256, 256}, partNo: textAt{512, 256},
		vram: 584, maker: textAt{4, 256}, width: 272, bandwidth: 280,
	},
}

// layoutOf returns the layout of a version, or nil if the version is unknown.
func layoutOf(v amdVersion) *amdLayout {
	for i := range amdLayouts {
		if l := &amdLayouts[i]; v.compare(l.first) >= 0 && v.compare(l.last) <= 0 {
			return l
		}
	}
	return nil
}

// memoryKinds has the names of amdsmi_vram_type_t, whose numbers have never changed.
var memoryKinds = map[uint32]string{
	1: "HBM", 2: "HBM2", 3: "HBM2E", 4: "HBM3", 5: "HBM3E", 10: "DDR2", 11: "DDR3", 12: "DDR4", 13: "DDR5",
	17: "GDDR1", 18: "GDDR2", 19: "GDDR3", 20: "GDDR4", 21: "GDDR5", 22: "GDDR6", 23: "GDDR7", 30: "LPDDR4", 31: "LPDDR5",
}

// memoryMakers has the names of amdsmi_vram_vendor_type_t of 24.5 to 25.2.
var memoryMakers = []string{"Samsung", "Infineon", "Elpida", "Etron", "Nanya", "Hynix", "Mosel", "Winbond", "ESMT", "Micron"}
