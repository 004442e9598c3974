// The engine's lists: entities, hierarchies, links, metric groups, incidents.
#include "fake.h"

#include <stdio.h>
#include <string.h>

static dcgmReturn_t tell_version(dcgmVersionInfo_t *out, const char *version) {
	if (out->version != dcgmVersionInfo_version2) return wrong_version();
	snprintf(out->rawBuildInfoString, sizeof out->rawBuildInfoString,
	         "version:%s;arch:x86_64;buildtype:Simulated;buildplatform:warpgauge", version);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmVersionInfo(dcgmVersionInfo_t *out) {
	ENTER(dcgmVersionInfo);
	return tell_version(out, S->library);
}

dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t h, dcgmVersionInfo_t *out) {
	ENTER(dcgmHostengineVersionInfo);
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	return tell_version(out, S->version);
}

static bool supported(const struct entity *e) {
	for (int i = 0; i < S->unsupported_count; i++)
		if (S->unsupported[i].kind == e->kind && S->unsupported[i].id == e->id) return false;
	return true;
}

dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t h, dcgm_field_entity_group_t kind, dcgm_field_eid_t *out, int *count,
                                        unsigned flags) {
	ENTER(dcgmGetEntityGroupEntities);
	int room = *count, n = 0;
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if ((int)kind < 0 || kind >= DCGM_FE_COUNT) return leave(DCGM_ST_BADPARAM);
	if (S->unlisted[kind]) return leave(S->unlisted[kind]);
	for (int i = 0; i < S->entity_count; i++) {
		const struct entity *e = &S->entities[i];
		if (e->kind != (int)kind || ((flags & DCGM_GEGE_FLAG_ONLY_SUPPORTED) && !supported(e))) continue;
		if (n < room) out[n] = (dcgm_field_eid_t)e->id;
		n++;
	}
	*count = LIE(n);
	return n > room && !S->counts ? beyond_limit(DCGM_ST_INSUFFICIENT_SIZE) : leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t h, dcgmMigHierarchy_v2 *out) {
	ENTER(dcgmGetGpuInstanceHierarchy);
	if (out->version != dcgmMigHierarchy_version2) return wrong_version();
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	out->count = 0;
	for (int i = 0; i < S->hierarchy_count && i < DCGM_MAX_HIERARCHY_INFO; i++) out->entityList[out->count++] = S->hierarchy[i];
	LIE(out->count);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetCpuHierarchy(dcgmHandle_t h, dcgmCpuHierarchy_v1 *out) {
	ENTER(dcgmGetCpuHierarchy);
	if (out->version != dcgmCpuHierarchy_version1) return wrong_version();
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!S->cpu_count) return leave(DCGM_ST_MODULE_NOT_LOADED);
	out->numCpus = (unsigned)S->cpu_count;
	LIE(out->numCpus);
	for (int i = 0; i < S->cpu_count; i++) {
		out->cpus[i].cpuId = S->cpus[i].id;
		for (unsigned c = S->cpus[i].first; c <= S->cpus[i].last; c++)
			out->cpus[i].ownedCores.bitmask[c / 64] |= UINT64_C(1) << c % 64;
	}
	return leave(DCGM_ST_OK);
}

// Version 4 has room for 18 links of a GPU, version 5 for 36.
#define FILL_LINKS(out, per_gpu)                                                                                   \
	do {                                                                                                           \
		(out)->numGpus = (out)->numNvSwitches = 0;                                                                 \
		for (int i = 0; i < S->links_count; i++) {                                                                 \
			const struct links *l = &S->links[i];                                                                  \
			if (l->kind == DCGM_FE_GPU && (out)->numGpus < DCGM_MAX_NUM_DEVICES) {                                 \
				(out)->gpus[(out)->numGpus].entityId = l->id;                                                      \
				for (int k = 0; k < l->count && k < (per_gpu); k++)                                                \
					(out)->gpus[(out)->numGpus].linkState[k] = (dcgmNvLinkLinkState_t)l->state[k];                 \
				(out)->numGpus++;                                                                                  \
			} else if (l->kind == DCGM_FE_SWITCH && (out)->numNvSwitches < DCGM_MAX_NUM_SWITCHES) {                \
				(out)->nvSwitches[(out)->numNvSwitches].entityId = l->id;                                          \
				for (int k = 0; k < l->count; k++)                                                                 \
					(out)->nvSwitches[(out)->numNvSwitches].linkState[k] = (dcgmNvLinkLinkState_t)l->state[k];     \
				(out)->numNvSwitches++;                                                                            \
			}                                                                                                      \
		}                                                                                                          \
		LIE((out)->numGpus), LIE((out)->numNvSwitches);                                                            \
	} while (0)

dcgmReturn_t dcgmGetNvLinkLinkStatus(dcgmHandle_t h, dcgmNvLinkStatus_v5 *out) {
	ENTER(dcgmGetNvLinkLinkStatus);
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (out->version == dcgmNvLinkStatus_version4) {
		dcgmNvLinkStatus_v4 *old = (dcgmNvLinkStatus_v4 *)(void *)out;
		FILL_LINKS(old, 18);
		return leave(DCGM_ST_OK);
	}
	if (out->version != dcgmNvLinkStatus_version5) return wrong_version();
	if (S->links_version < 5) return leave(DCGM_ST_VER_MISMATCH);
	FILL_LINKS(out, DCGM_NVLINK_MAX_LINKS_PER_GPU);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetNvLinkP2PStatus(dcgmHandle_t h, dcgmNvLinkP2PStatus_v1 *out) {
	ENTER(dcgmGetNvLinkP2PStatus);
	if (out->version != dcgmNvLinkP2PStatus_version1) return wrong_version();
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	int64_t ids[DCGM_MAX_NUM_DEVICES];
	unsigned n = 0;
	for (int i = 0; i < S->entity_count && n < DCGM_MAX_NUM_DEVICES; i++)
		if (S->entities[i].kind == DCGM_FE_GPU) ids[n++] = S->entities[i].id;
	out->numGpus = n;
	LIE(out->numGpus);
	for (unsigned a = 0; a < n; a++) {
		out->gpus[a].entityId = (dcgm_field_eid_t)ids[a];
		for (unsigned b = 0; b < n; b++) out->gpus[a].linkStatus[b] = (dcgmNvLinkGpuP2PStatus_t)S->peers[ids[a]][ids[b]];
	}
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmProfGetSupportedMetricGroups(dcgmHandle_t h, dcgmProfGetMetricGroups_t *out) {
	ENTER(dcgmProfGetSupportedMetricGroups);
	if (out->version != dcgmProfGetMetricGroups_version3) return wrong_version();
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (S->no_profiling) return leave((dcgmReturn_t)S->no_profiling);
	out->numMetricGroups = 0;
	for (int i = 0; i < S->metric_count; i++)
		if (S->metrics[i].gpu == out->gpuId && out->numMetricGroups < DCGM_PROF_MAX_NUM_GROUPS_V2)
			out->metricGroups[out->numMetricGroups++] = S->metrics[i].group;
	if (out->numMetricGroups) LIE(out->metricGroups[0].numFieldIds), LIE(out->numMetricGroups);
	return leave(out->numMetricGroups ? DCGM_ST_OK : DCGM_ST_PROFILING_NOT_SUPPORTED);
}

static bool member(const struct group *g, const struct entity *e) {
	for (int i = 0; i < g->count; i++)
		if ((int)g->members[i].entityGroupId == e->kind && g->members[i].entityId == e->id) return true;
	return false;
}

dcgmReturn_t dcgmHealthCheck(dcgmHandle_t h, dcgmGpuGrp_t id, dcgmHealthResponse_t *out) {
	ENTER(dcgmHealthCheck);
	const struct group *g = group_of(id);
	if (out->version != dcgmHealthResponse_version5) return wrong_version();
	if (!connection_of(h)) return leave(DCGM_ST_CONNECTION_NOT_VALID);
	if (!g || !g->health) return leave(DCGM_ST_BADPARAM);
	out->overallHealth = DCGM_HEALTH_RESULT_PASS;
	out->incidentCount = 0;
	for (int i = 0; i < S->incident_count && out->incidentCount < DCGM_HEALTH_WATCH_MAX_INCIDENTS_V2; i++) {
		const struct incident *in = &S->incidents[i];
		if (!(in->system & g->health) || !member(g, &in->of)) continue;
		dcgmIncidentInfo_t *o = &out->incidents[out->incidentCount++];
		o->system = (dcgmHealthSystems_t)in->system;
		o->health = (dcgmHealthWatchResults_t)in->health;
		o->error.code = in->code;
		memcpy(o->error.msg, in->message, sizeof in->message);
		o->entityInfo = (dcgmGroupEntityPair_t){(dcgm_field_entity_group_t)in->of.kind, (dcgm_field_eid_t)in->of.id};
		if (o->health > out->overallHealth) out->overallHealth = o->health;
	}
	LIE(out->incidentCount);
	return leave(DCGM_ST_OK);
}

const char *errorString(dcgmReturn_t r) {
	static _Thread_local char text[32];
	if (r == DCGM_ST_OK) return "Success";
	snprintf(text, sizeof text, "simulated error %d", (int)r);
	return text;
}
