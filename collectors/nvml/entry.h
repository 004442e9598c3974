// What is called before go-nvml may see the library, by address. The declarations
// are those of nvml.h of NVML 13; nvmlReturn_t is an enum.
#ifndef WARPGAUGE_NVML_ENTRY_H
#define WARPGAUGE_NVML_ENTRY_H

typedef enum wg_return { WG_RETURN_SUCCESS = 0, WG_RETURN_UNKNOWN = 999 } wg_return;
_Static_assert(sizeof(wg_return) == sizeof(int), "nvmlReturn_t");

// nvmlInitWithFlags
static inline int wg_init_with_flags(void *f, unsigned int flags)
{
	return (int)((wg_return (*)(unsigned int))f)(flags);
}

// nvmlInit_v2, nvmlShutdown
static inline int wg_call(void *f)
{
	return (int)((wg_return (*)(void))f)();
}

// nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion
static inline int wg_text(void *f, char *buf, unsigned int size)
{
	return (int)((wg_return (*)(char *, unsigned int))f)(buf, size);
}

#endif
