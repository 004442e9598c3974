#include "ask.h"

enum {
	CAPS_INDEX_NVLINK = 2, // NVML_P2P_CAPS_INDEX_NVLINK
	MOST_LINKS = 18,       // NVML_NVLINK_MAX_LINKS; asking for more costs an error each
};

typedef int (*p2p_status)(void *, void *, int, int *);
typedef int (*link_state)(void *, unsigned int, int *);

int wg_ask_p2p(void *fn, uintptr_t a, uintptr_t b)
{
	int status = 0;
	int ret = ((p2p_status)fn)((void *)a, (void *)b, CAPS_INDEX_NVLINK, &status);

	return ret != 0 ? -ret : status;
}

struct wg_links wg_ask_links(void *fn, uintptr_t dev)
{
	struct wg_links s = {0, 0};

	for (unsigned int link = 0; link < MOST_LINKS; link++) {
		int active = 0;

		if (((link_state)fn)((void *)dev, link, &active) != 0)
			continue;
		s.known |= UINT64_C(1) << link;
		if (active == 1)
			s.active |= UINT64_C(1) << link;
	}
	return s;
}
