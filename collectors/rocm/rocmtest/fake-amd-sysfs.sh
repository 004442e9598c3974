#!/usr/bin/env bash
# fake-amd-sysfs.sh - run a command that sees simulated AMD Instinct GPUs.
#
# ROCm SMI finds GPUs by reading files under /sys only; it opens no device node
# to enumerate or to sample. This script builds such a tree in an ordinary
# directory, puts it over /sys in a private mount namespace, and runs a command
# there. Nothing outside that namespace changes.
#
#   fake-amd-sysfs.sh [options] -- command [arg ...]
#
#   -n N       number of GPUs, 1..16                              (default 4)
#   -m MODEL   mi250x | mi300x                                    (default mi250x)
#   -f FMT     gpu_metrics layout 1.3 | 1.5 | 1.7     (default 1.3 / 1.5 by model)
#   -x MODE    compute partition of an MI300X: SPX | DPX | QPX | CPX (default SPX)
#   -i MS      change the values every MS milliseconds, 0 = frozen (default 100)
#   -p SPEC    a compute process, PID:GPU:VRAM_BYTES:CUS; repeatable; PID may be
#              "self" (the command itself) or any number
#   -d         ECC count files get the third line ("de:") that newer kernels
#              print for UMC. ROCm SMI 5.2 built with asserts ABORTS on it.
#   -S GPU     this GPU is suspended (power/runtime_status); repeatable
#   -b         leave out card0, the non-AMD display adapter of a server's BMC
#   -D         also fake /dev/kfd and /dev/dri/* as empty regular files, for code
#              that looks for the device nodes (ROCm SMI does not need them)
#   -s         keep the machine's /dev/shm, where ROCm SMI has one mutex a device;
#              otherwise the command gets an empty one of its own
#   -t DIR     build the tree in DIR and keep it (default: temporary, removed)
#   -u         enter a user namespace first (no root needed, where the kernel
#              allows unprivileged user namespaces)
#   -c         only create the tree and print its path
#
# The command gets FAKE_AMD_SYS=<tree>: a test may write any file there and the
# library will read it on its next call. Two ways to misbehave on purpose:
#   * replace a hwmon input (temp2_input, power1_average) by a FIFO: the read
#     blocks until something writes it (a hung driver), or takes as long as the
#     writer takes (a slow one). Other files have to be regular ones;
#   * hold one device's mutex: the library exports rsmi_test_sleep(device, seconds),
#     under its C++ name _Z15rsmi_test_sleepjj.
#
# Needs: root, or CAP_SYS_ADMIN in the mount namespace, or -u; bash >= 4.4,
# util-linux (unshare, mount), coreutils. Not a container's default seccomp
# profile; there, give a C program a copy of the library whose paths are patched
# (smitest does), and this project's reader a root directory (Tree does).
set -euo pipefail

ngpu=4 model=mi250x fmt='' mode='' tick=100 de=0 bmc=1 tree='' userns=0 create=0 shm=0 devs=0
procs=() asleep=()
while getopts 'n:m:f:x:i:p:dS:bDst:uc' o; do
  case $o in
    n) ngpu=$OPTARG ;;
    m) model=$OPTARG ;;
    f) fmt=$OPTARG ;;
    x) mode=$OPTARG ;;
    i) tick=$OPTARG ;;
    p) procs+=("$OPTARG") ;;
    d) de=1 ;;
    S) asleep+=("$OPTARG") ;;
    b) bmc=0 ;;
    D) devs=1 ;;
    s) shm=1 ;;
    t) tree=$OPTARG ;;
    u) userns=1 ;;
    c) create=1 ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
((ngpu >= 1 && ngpu <= 16)) || { echo 'need 1..16 GPUs' >&2; exit 2; }
((create || $# > 0)) || { echo 'no command given' >&2; exit 2; }

# ---------------------------------------------------------------- the models
case $model in
  mi250x) # one GCD is one device
    devid=0x7408 subdev=0x0b0c name='AMD INSTINCT MI250X (MCM) OAM AC MBA'
    vram=68702699520 cus=110 arrays=8 cuarr=14 vbios=113-D65201-054 number=D65201
    sclk_lo=500 sclk_hi=1700 mclk_hi=1600 cap=560 sensors='1:edge 2:junction 3:mem' dies=2
    pwr=average gfx=90010 fmt=${fmt:-1.3} ;;
  mi300x) # SPX mode: one device per package
    devid=0x74a1 subdev=0x74a1 name='AMD Instinct MI300X OAM'
    vram=206141652992 cus=304 arrays=32 cuarr=10 vbios=113-M3000100-102 number=102-G30211-00
    sclk_lo=132 sclk_hi=2100 mclk_hi=1300 cap=750 sensors='2:junction 3:mem' dies=1
    pwr=input gfx=90402 fmt=${fmt:-1.5} ;;
  *) echo "unknown model $model" >&2; exit 2 ;;
esac
case $fmt in 1.3 | 1.5 | 1.7) ;; *) echo "unknown layout $fmt" >&2; exit 2 ;; esac
case $model:$mode in
  *:) parts=1 xccs=1 ;;
  mi300x:SPX) parts=1 ;;
  mi300x:DPX) parts=2 ;;
  mi300x:QPX) parts=4 ;;
  mi300x:CPX) parts=8 ;;
  *) echo "no mode $mode of $model" >&2; exit 2 ;;
esac
if [[ $model == mi300x ]]; then mode=${mode:-SPX} xccs=$((8 / parts)); fi

keep=1
[[ -n $tree ]] || { tree=$(mktemp -d "${TMPDIR:-/tmp}/fake-amd.XXXXXX") keep=0; }
mkdir -p "$tree/sys"
sys=$(cd "$tree/sys" && pwd -P)

put() { printf '%s\n' "${@:2}" >"$1"; } # put FILE LINE...

# set FILE WIDTH TEXT: change a value in place, in one write and without
# truncating, so that a concurrent reader never sees an empty file. The pad is
# newlines, which every reader of sysfs ignores.
set_() {
  local v=$3
  while ((${#v} < $2)); do v+=$'\n'; done
  printf '%s\n' "$v" 1<>"$1"
}

# ------------------------------------------------------- gpu_metrics, binary
# The blob is little-endian with C alignment; it is collected as \xHH escapes.
blob=
u8() { printf -v _e '\\x%02x' $(($1 & 255)); blob+=$_e; }
u16() { printf -v _e '\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)); blob+=$_e; }
u32() { u16 "$1"; u16 $(($1 >> 16)); }
u64() { u32 "$1"; u32 $(($1 >> 32)); }
rep() { local i; for ((i = 0; i < $2; i++)); do "$1" "$3"; done; } # rep u16 COUNT VALUE
pad() { rep u8 "$1" 0; }

# Inputs: util mem_util watts t_edge t_junction t_mem sclk mclk energy now_ns
#         gfx_acc mem_acc throttle replay pcie_acc xgmi_acc ticks
metrics() {
  local x
  blob=
  case $fmt in
    1.3)
      u16 120; u8 1; u8 3                                   # size, format, content
      u16 "$t_edge"; u16 "$t_junction"; u16 "$t_mem"        # degrees C
      u16 45; u16 44; u16 46                                # vr gfx, soc, mem
      u16 "$util"; u16 "$mem_util"; u16 0                   # gfx, umc, mm activity, %
      u16 "$watts"; u64 "$energy"; u64 "$now_ns"            # W, 15.259 uJ, ns
      u16 "$sclk"; u16 1090; u16 "$mclk"; rep u16 4 0       # average clocks, MHz
      u16 "$sclk"; u16 1090; u16 "$mclk"; rep u16 4 0       # current clocks, MHz
      u32 "$throttle"; u16 0; u16 16; u16 160; u16 0        # fan, lanes, 0.1 GT/s, pad
      u32 "$gfx_acc"; u32 "$mem_acc"; rep u16 4 "$t_mem"    # % * ms, hbm stacks
      u64 $((now_ns / 10)); u16 0; u16 800; u16 0; u16 0    # fw time 10 ns, mV
      u64 "$throttle" ;;                                    # ASIC independent bits
    1.5)
      u16 360; u8 1; u8 5
      u16 "$t_junction"; u16 "$t_mem"; u16 44
      u16 "$watts"; u16 "$util"; u16 "$mem_util"
      u16 "$util"; rep u16 3 65535; rep u16 32 65535        # vcn[4], jpeg[32]; ffff = n/a
      u64 "$energy"; u64 "$now_ns"; u32 "$throttle"; u32 0
      u16 16; u16 320; u16 16; u16 32                       # pcie, xgmi width and speed
      u32 "$gfx_acc"; u32 "$mem_acc"
      u64 "$pcie_acc"; u64 12; u64 0; u64 "$replay"; u64 0  # pcie acc, inst, l0, replay, rollover
      u32 0; u32 0                                          # nak sent, received
      rep u64 7 "$xgmi_acc"; u64 0; rep u64 7 $((xgmi_acc / 2)); u64 0 # kB read, written
      u64 $((now_ns / 10)); rep u16 8 "$sclk"; rep u16 4 1090; rep u16 4 29; rep u16 4 22
      u16 "$mclk"; u16 0; pad 4 ;;
    1.7)
      u16 2208; u8 1; u8 7
      u16 "$t_junction"; u16 "$t_mem"; u16 44
      u16 "$watts"; u16 "$util"; u16 "$mem_util"
      u64 5300; u64 "$energy"; u64 "$now_ns"                # vram GB/s max
      u32 "$ticks"; u32 0; u32 "$throttle"; rep u32 3 0     # cycles; prochot ppt socket vr hbm
      u32 0; u16 16; u16 320; u16 16; u16 32
      u32 "$gfx_acc"; u32 "$mem_acc"; pad 4
      u64 "$pcie_acc"; u64 12; u64 0; u64 "$replay"; u64 0; u32 0; u32 0
      rep u64 7 "$xgmi_acc"; u64 0; rep u64 7 $((xgmi_acc / 2)); u64 0
      rep u16 7 1; u16 0; u16 0; pad 6                      # link up/down
      u64 $((now_ns / 10)); rep u16 8 "$sclk"; rep u16 4 1090; rep u16 4 29; rep u16 4 22
      u16 "$mclk"; u16 "$parts"; pad 4
      for ((x = 0; x < parts; x++)); do # each with its XCCs; the rest reads n/a
        rep u32 "$xccs" "$util"; rep u32 $((8 - xccs)) 4294967295
        rep u16 32 65535; u16 "$util"; rep u16 3 65535
        rep u64 "$xccs" "$gfx_acc"; rep u64 $((8 - xccs)) -1
        rep u64 "$xccs" "$throttle"; rep u64 $((8 - xccs)) -1
      done
      blob+=$xcp_na; u32 0; pad 4 ;;
  esac
}
xcp_na=
if [[ $fmt == 1.7 ]]; then rep u8 $(((8 - parts) * 232)) 255; xcp_na=$blob; fi

# ------------------------------------------------------------ the static tree
# card numbers, PCI addresses and KFD ids differ on purpose: a collector that
# mixes up device index, DRM card, render node and KFD node shows it here.
# Each partition has a card, a render node and a KFD node of its own; only the
# first of a GPU is its PCI device, the others are platform devices.
card_of() { echo $(($1 * parts + ${2:-0} + bmc)); }   # GPU [PARTITION]
render_of() { echo $(($1 * parts + ${2:-0} + 128)); } # GPU [PARTITION]
bdf_of() { printf '0000:%02x:00.0' $((0x41 + $1 * 0x08)); }
kfdid_of() { echo $((51000 + ($1 * parts + ${2:-0}) * 617)); } # GPU [PARTITION]
pci_of() { printf '%s/devices/pci0000:%02x/0000:%02x:01.1/%s' "$sys" $((0x40 + $1 * 8)) $((0x40 + $1 * 8)) "$(bdf_of "$1")"; }
uid_of() { printf '%016x' $((0x5a1c0de000000000 + $1 * 0x1f3d5b79)); }

build() {
  local d f i j c k m s w x r
  mkdir -p "$sys"/class/{drm,hwmon,kfd} "$sys"/bus/pci/{devices,drivers/amdgpu} \
    "$sys"/module/amdgpu "$sys"/devices/virtual/kfd/kfd/{proc,topology/nodes}
  put "$sys/module/amdgpu/version" 6.8.5 # rsmi_version_str_get(DRIVER); else uname -r
  put "$sys/module/amdgpu/initstate" live # amd-smi's "is the driver loaded"
  ln -sfn ../../devices/virtual/kfd/kfd "$sys/class/kfd/kfd"
  k=$sys/devices/virtual/kfd/kfd
  put "$k/topology/generation_id" 1
  put "$k/topology/system_properties" 'platform_oem 0' 'platform_id 0' 'platform_rev 0'

  # KFD nodes: 0 and 1 are the CPU sockets (gpu_id 0), then one per GPU, or per
  # partition of it. A DRM card without a KFD node of the same PCI address is
  # dropped by rsmi_init.
  for ((i = 0; i < ngpu * parts + 2; i++)); do
    d=$k/topology/nodes/$i
    mkdir -p "$d"/io_links "$d"/p2p_links # both directories must exist for every node
    if ((i < 2)); then
      put "$d/gpu_id" 0
      put "$d/name" ''
      put "$d/properties" 'cpu_cores_count 96' 'simd_count 0' 'location_id 0' 'domain 0' 'drm_render_minor 0'
    else
      j=$(((i - 2) / parts)) x=$(((i - 2) % parts))
      put "$d/gpu_id" "$(kfdid_of $j $x)"
      put "$d/name" "$model"
      put "$d/properties" "cpu_cores_count 0" "simd_count $((cus * 4 / parts))" "mem_banks_count 1" \
        "caches_count 206" "io_links_count $((ngpu))" "max_waves_per_simd 8" "lds_size_in_kb 64" \
        "wave_front_size 64" "array_count $((arrays / parts))" "simd_arrays_per_engine 1" \
        "cu_per_simd_array $cuarr" "simd_per_cu 4" "gfx_target_version $gfx" "vendor_id 4098" \
        "device_id $((devid))" "location_id $(((0x41 + j * 8) << 8 | x << 28))" "domain 0" \
        "drm_render_minor $(render_of $j $x)" "hive_id 7312645201374019923" "num_sdma_engines 2" \
        "num_sdma_xgmi_engines 3" "num_cp_queues 24" "max_engine_clk_fcompute $sclk_hi" \
        "local_mem_size 0" "fw_version 165" "capability 746708608" "debug_prop 1495" \
        "sdma_fw_version 20" "unique_id $((0x$(uid_of $j)))" "num_xcc $xccs" "max_engine_clk_ccompute 3700"
      mkdir -p "$d/mem_banks/0"
      put "$d/mem_banks/0/properties" 'heap_type 1' "size_in_bytes $((vram / parts))" 'flags 0' 'width 8192' "mem_clk_max $mclk_hi"
    fi
    # links: GPU to GPU over XGMI (type 11), GPU to CPU over PCIe (type 2)
    m=0
    for ((j = 0; j < ngpu * parts + 2; j++)); do
      ((j != i && (i > 1 || j > 1))) || continue
      if ((i > 1 && j > 1)); then s=11 w=15; else s=2 w=20; fi
      mkdir -p "$d/io_links/$m"
      put "$d/io_links/$m/properties" "type $s" 'version_major 0' 'version_minor 0' "node_from $i" \
        "node_to $j" "weight $w" 'min_latency 0' 'max_latency 0' 'min_bandwidth 64000' \
        'max_bandwidth 64000' 'recommended_transfer_size 0' 'flags 1'
      m=$((m + 1))
    done
  done

  if ((bmc)); then # card0: an AST display adapter, vendor 0x1a03, no KFD node
    d=$sys/devices/pci0000:c0/0000:c1:00.0
    mkdir -p "$d/drm/card0"
    put "$d/vendor" 0x1a03
    put "$d/device" 0x2000
    ln -sfn ../../../0000:c1:00.0 "$d/drm/card0/device"
    ln -sfn ../../devices/pci0000:c0/0000:c1:00.0/drm/card0 "$sys/class/drm/card0"
    ln -sfn ../../../devices/pci0000:c0/0000:c1:00.0 "$sys/bus/pci/devices/0000:c1:00.0"
  fi

  for ((i = 0; i < ngpu; i++)); do
    c=$(card_of $i) r=renderD$(render_of $i) d=$(pci_of $i)
    w=${d#"$sys/"}
    mkdir -p "$d"/{"drm/card$c","drm/$r",hwmon/hwmon$((40 + i)),ras,fw_version,xgmi_hive_info,power}
    # discovery: class/drm/cardN must be a symlink with the PCI address in it
    # (its bdf), and vendor + vbios_version must be there
    ln -sfn "../../$w/drm/card$c" "$sys/class/drm/card$c"
    ln -sfn "../../$w/drm/$r" "$sys/class/drm/$r"
    ln -sfn "../../../$(bdf_of $i)" "$d/drm/card$c/device"
    ln -sfn "../../../$(bdf_of $i)" "$d/drm/$r/device"
    put "$d/drm/card$c/dev" "226:$c"
    put "$d/drm/$r/dev" "226:${r#renderD}"
    for ((x = 1; x < parts; x++)); do
      m=devices/platform/amdgpu_xcp_$((i * (parts - 1) + x))
      for s in "card$(card_of $i $x)" "renderD$(render_of $i $x)"; do
        mkdir -p "$sys/$m/drm/$s"
        ln -sfn "../../../${m##*/}" "$sys/$m/drm/$s/device"
        ln -sfn "../../$m/drm/$s" "$sys/class/drm/$s"
      done
      put "$sys/$m/uevent" DRIVER=amdgpu_xcp MODALIAS=platform:amdgpu_xcp
    done
    put "$d/power/control" auto
    put "$d/power/runtime_status" active
    ln -sfn "../../$w/hwmon/hwmon$((40 + i))" "$sys/class/hwmon/hwmon$((40 + i))"
    ln -sfn "../../../$(bdf_of $i)" "$d/hwmon/hwmon$((40 + i))/device"
    ln -sfn "../../../$w" "$sys/bus/pci/devices/$(bdf_of $i)"
    ln -sfn "../../../../$w" "$sys/bus/pci/drivers/amdgpu/$(bdf_of $i)"
    ln -sfn ../../../../bus/pci/drivers/amdgpu "$d/driver"
    put "$d/uevent" DRIVER=amdgpu PCI_CLASS=120000 "PCI_ID=1002:${devid#0x}" \
      "PCI_SUBSYS_ID=1002:${subdev#0x}" "PCI_SLOT_NAME=$(bdf_of $i)"
    put "$d/vendor" 0x1002            # rsmi_dev_vendor_id_get; names come from pci.ids
    put "$d/device" $devid            # rsmi_dev_id_get
    put "$d/subsystem_vendor" 0x1002  # rsmi_dev_subsystem_vendor_id_get
    put "$d/subsystem_device" $subdev # rsmi_dev_subsystem_id_get
    put "$d/revision" 0x00
    put "$d/class" 0x120000
    put "$d/vbios_version" "$vbios"   # rsmi_dev_vbios_version_get
    put "$d/product_name" "$name"     # rsmi_dev_name_get, before pci.ids
    put "$d/product_number" "$number" # rsmi_dev_sku_get wants hex here
    # shellcheck disable=SC2017 # whole packages: the two dies of one share its number
    printf 'PCB%06d\n' $((31415 + i / dies * 7)) >"$d/serial_number" # rsmi_dev_serial_number_get
    put "$d/unique_id" "$(uid_of $i)" # rsmi_dev_unique_id_get (hex, no 0x)
    put "$d/numa_node" $((i * 2 / ngpu)) # rsmi_topo_numa_affinity_get
    put "$d/current_link_speed" '16.0 GT/s PCIe'
    put "$d/current_link_width" 16
    put "$d/max_link_speed" '16.0 GT/s PCIe'
    put "$d/max_link_width" 16
    put "$d/power_dpm_force_performance_level" auto # rsmi_dev_perf_level_get
    put "$d/pp_power_profile_mode" 'NUM        MODE_NAME' '  1 BOOTUP_DEFAULT *' '  5        COMPUTE'
    put "$d/pp_sclk_od" 0
    put "$d/pp_dpm_fclk" '0: 400Mhz' '1: 1400Mhz *' # CLK_TYPE_DF
    put "$d/pp_dpm_socclk" '0: 666Mhz' '1: 1090Mhz *'
    put "$d/pp_dpm_pcie" '0: 2.5GT/s, x1' '1: 16.0GT/s, x16 *' # rsmi_dev_pci_bandwidth_get
    put "$d/mem_info_vram_total" $vram # rsmi_dev_memory_total_get
    put "$d/mem_info_vis_vram_total" $vram
    put "$d/mem_info_gtt_total" 540846354432
    put "$d/mem_info_vram_vendor" hynix
    if [[ -n $mode ]]; then
      put "$d/current_compute_partition" "$mode" # rsmi_dev_compute_partition_get, >= 5.6
      put "$d/available_compute_partition" 'SPX, DPX, QPX, CPX'
      put "$d/current_memory_partition" NPS1 # rsmi_dev_memory_partition_get
      put "$d/available_memory_partition" 'NPS1, NPS4'
    fi
    put "$d/xgmi_error" 0 # rsmi_dev_xgmi_error_status; on hardware a read clears it
    put "$d/xgmi_hive_info/xgmi_hive_id" 7312645201374019923
    put "$d/xgmi_device_id" "$(uid_of $i)"
    put "$d/ras/features" 'feature mask: 0x1fff' # rsmi_dev_ecc_enabled_get
    for f in umc sdma gfx mmhub pcie_bif hdp xgmi_wafl; do # rsmi_dev_ecc_count_get
      put "$d/ras/${f}_err_count" 'ue: 0' 'ce: 0'
    done
    # rsmi_dev_memory_reserved_pages_get: address : size : R(etired) P(ending) F(ailed)
    put "$d/ras/gpu_vram_bad_pages" '0x00001a2b : 0x00001000 : R' '0x00003c4d : 0x00001000 : P'
    for f in asd ce mc me mec mec2 pfp rlc rlc_srlc rlc_srlg rlc_srls sdma sdma2 smc sos ta_ras ta_xgmi uvd vce vcn; do
      put "$d/fw_version/${f}_fw_version" 0x000000a5
    done

    # hwmon: name "amdgpu"; every tempN needs its label (edge, junction, mem), and
    # ROCm SMI 5.2 fails rsmi_init altogether without in0_label = vddgfx
    f=$d/hwmon/hwmon$((40 + i))
    put "$f/name" amdgpu
    put "$f/in0_label" vddgfx
    for s in $sensors; do
      put "$f/temp${s%%:*}_label" "${s#*:}"
      put "$f/temp${s%%:*}_crit" 100000
      put "$f/temp${s%%:*}_crit_hyst" -273150
      put "$f/temp${s%%:*}_emergency" 105000
    done
    put "$f/freq1_label" sclk
    put "$f/freq2_label" mclk
    put "$f/power1_label" PPT
    put "$f/power1_cap" $((cap * 1000000))
    put "$f/power1_cap_max" $((cap * 1000000))
    put "$f/power1_cap_min" 0
    put "$f/power1_cap_default" $((cap * 1000000))
  done

  for s in ${asleep[@]+"${asleep[@]}"}; do
    put "$(pci_of "$s")/power/runtime_status" suspended
  done

  # processes: rsmi_compute_process_info_get lists proc/<pid>; ..._by_pid reads
  # vram_<id>, sdma_<id> of EVERY GPU, so all of them must be there
  for s in ${procs[@]+"${procs[@]}"}; do
    IFS=: read -r w j m c <<<"$s"
    d=$k/proc/$w
    mkdir -p "$d/queues/0"
    put "$d/pasid" $((32770 + j))
    put "$d/queues/0/gpuid" "$(kfdid_of "$j")"
    put "$d/queues/0/size" 524288
    put "$d/queues/0/type" 0
    for ((i = 0; i < ngpu; i++)); do
      for ((x = 0; x < parts; x++)); do # it computes on the first partition
        r=$(kfdid_of $i $x)
        mkdir -p "$d/stats_$r"
        put "$d/vram_$r" $((i == j && x == 0 ? m : 0))
        put "$d/sdma_$r" $((i == j && x == 0 ? 1234 : 0))
        put "$d/stats_$r/cu_occupancy" $((i == j && x == 0 ? c : 0))
        put "$d/stats_$r/evicted_ms" 0
      done
    done
  done
}

# ----------------------------------------------------------- the live values
# One step of every GPU at $now_ns. Each has its own phase of a 20 s triangle
# wave, so that the GPUs differ and every graph moves.
declare -a E GA MA PA XA
step() {
  local i d h x ce
  for ((i = 0; i < ngpu; i++)); do
    d=${P[i]} h=${H[i]}
    x=$(((now_ns / 10000000 + i * 700) % 2000))
    ((x < 1000)) || x=$((1999 - x))
    util=$((x / 10)) mem_util=$((util * 6 / 10))
    watts=$((90 + (cap - 100) * util / 100)) throttle=$((util > 95 ? 1 : 0))
    t_edge=$((35 + util * 3 / 10)) t_junction=$((40 + util * 4 / 10)) t_mem=$((42 + util * 3 / 10))
    sclk=$((sclk_lo + (sclk_hi - sclk_lo) * util / 100)) mclk=$((util > 0 ? mclk_hi : 900))
    E[i]=$((${E[i]:-1000000} + watts * dt_us * 1000 / 15259)) # unit: 15.259 uJ
    GA[i]=$((${GA[i]:-0} + util * dt_us / 1000)) MA[i]=$((${MA[i]:-0} + mem_util * dt_us / 1000))
    PA[i]=$((${PA[i]:-0} + util)) XA[i]=$((${XA[i]:-0} + util * 1000))
    ((i % dies == 0)) || watts=0 E[i]=0 # the package's power is its first die's to tell
    energy=${E[i]} gfx_acc=${GA[i]} mem_acc=${MA[i]} pcie_acc=${PA[i]} xgmi_acc=${XA[i]}
    replay=$((ticks / 600)) ce=$((ticks / 300))

    set_ "$d/gpu_busy_percent" 3 $util     # rsmi_dev_busy_percent_get
    set_ "$d/mem_busy_percent" 3 $mem_util # rsmi_dev_memory_busy_percent_get
    set_ "$d/mem_info_vram_used" 13 $((vram * (50 + util * 9) / 1000))
    set_ "$d/mem_info_vis_vram_used" 13 $((vram * (50 + util * 9) / 1000))
    set_ "$d/mem_info_gtt_used" 13 $((22020096 + util * 4096))
    set_ "$d/pcie_replay_count" 10 $replay # rsmi_dev_pci_replay_counter_get
    # rsmi_dev_pci_throughput_get: packets sent, received in 1 s, max payload.
    # On hardware this read SLEEPS ONE SECOND in the kernel.
    set_ "$d/pcie_bw" 30 "$((util * 9000)) $((util * 4000)) 256"
    set_ "$d/pp_dpm_sclk" 40 "0: ${sclk_lo}Mhz"$'\n'"1: ${sclk}Mhz *"$'\n'"2: ${sclk_hi}Mhz" # CLK_TYPE_SYS
    set_ "$d/pp_dpm_mclk" 40 "0: 400Mhz"$'\n'"1: ${mclk}Mhz *"                               # CLK_TYPE_MEM
    if ((de)); then
      set_ "$d/ras/umc_err_count" 40 "ue: 0"$'\n'"ce: $ce"$'\n'"de: 0"
    else
      set_ "$d/ras/umc_err_count" 30 "ue: 0"$'\n'"ce: $ce"
    fi
    set_ "$h/temp2_input" 6 $((t_junction * 1000)) # millidegrees
    set_ "$h/temp3_input" 6 $((t_mem * 1000))
    [[ $sensors != 1:* ]] || set_ "$h/temp1_input" 6 $((t_edge * 1000))
    set_ "$h/power1_$pwr" 10 $((watts * 1000000))  # microwatts
    set_ "$h/in0_input" 5 $((700 + util * 3))      # millivolts
    set_ "$h/freq1_input" 11 $((sclk * 1000000))   # hertz
    set_ "$h/freq2_input" 11 $((mclk * 1000000))
    metrics
    printf '%b' "$blob" 1<>"$d/gpu_metrics"        # rsmi_dev_gpu_metrics_info_get
  done
  ticks=$((ticks + 1))
}

now() { now_ns=$((${EPOCHREALTIME/./} * 1000)); }

# The background process: it changes the values until the command, whose PID is
# that of this script (it is exec'ed), is gone; then it removes the tree.
live() {
  local last pause never
  exec {never}<> <(:) # a pipe that never yields: read -t on it sleeps without a fork
  printf -v pause '%d.%03d' $(((tick ? tick : 200) / 1000)) $(((tick ? tick : 200) % 1000))
  while [[ -e /proc/$$ ]]; do
    last=$now_ns
    read -r -t "$pause" <&"$never" || true
    ((tick > 0)) || continue
    now
    dt_us=$(((now_ns - last) / 1000))
    step
  done
  ((keep)) || rm -rf --one-file-system -- "$tree"
}

build
P=() H=()
for ((g = 0; g < ngpu; g++)); do
  P+=("$(pci_of $g)")
  H+=("$(pci_of $g)/hwmon/hwmon$((40 + g))")
done
ticks=0 dt_us=0
now
step

mkdir -p "$sys/devices/platform"
if ((create)); then echo "$sys"; exit 0; fi

# ------------------------------------------------- put the tree over /sys, run
# The rest of the real /sys stays reachable: it is bound whole at .real, and the
# tree links to it wherever it has nothing of its own.
farm() { # farm DIR: link each entry of the real /sys/DIR that the tree lacks
  local e up=/$1 missing=()
  up=${up//[^\/]/} up=${up//\//..\/}
  for e in "/sys/$1"/*; do
    [[ -e $sys/$1/${e##*/} || -L $sys/$1/${e##*/} ]] || missing+=("$up.real/${e#/sys/}")
  done
  ((${#missing[@]} == 0)) || ln -s -t "$sys/$1" -- "${missing[@]}"
}
shopt -s nullglob dotglob
mkdir -p "$sys/.real"
for e in /sys/*; do
  [[ -e $sys/${e##*/} ]] || ln -s ".real/${e##*/}" "$sys/${e##*/}"
done
for e in class class/hwmon devices devices/virtual devices/platform module bus bus/pci bus/pci/devices bus/pci/drivers; do
  farm "$e"
done

export FAKE_AMD_SYS=$sys
dev=
if ((devs)); then
  dev=$tree/dev
  mkdir -p "$dev/dri"
  : >"$dev/kfd"
  for ((g = 0; g < ngpu; g++)); do : >"$dev/dri/card$(card_of $g)" && : >"$dev/dri/renderD$(render_of $g)"; done
fi
ns=(unshare --mount --propagation private)
((!userns)) || ns=(unshare --user --map-root-user --mount --propagation private)
cat >"$tree/enter" <<'END'
set -e
t=$1 shm=$2 dev=$3; shift 3
mount --rbind /sys "$t/.real"
mount --rbind "$t" /sys
((shm)) || mount -t tmpfs -o mode=1777 tmpfs /dev/shm # the library's mutexes
if [[ -n $dev ]]; then # the same farm of links as for /sys
  mkdir -p "$dev/.real"
  mount --rbind /dev "$dev/.real"
  for e in /dev/*; do [[ -e $dev/${e##*/} ]] || ln -s ".real/${e##*/}" "$dev/${e##*/}"; done
  mount --rbind "$dev" /dev
fi
p=/sys/devices/virtual/kfd/kfd/proc # the exec keeps this PID: it is the command
[[ ! -d $p/self ]] || mv "$p/self" "$p/$$"
exec "$@"
END
live </dev/null >/dev/null 2>&1 &
exec "${ns[@]}" -- bash "$tree/enter" "$sys" "$shm" "$dev" "$@"
