// A simulated host engine behind libdcgm.so.4's public interface. It is compiled
// against the headers of go-dcgm, so that tests check the collector's own
// declarations against NVIDIA's.
#ifndef DCGMTEST_FAKE_H
#define DCGMTEST_FAKE_H

#define _GNU_SOURCE
#define DCGM_API_EXPORT

#include "dcgm_agent.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#include "simulated.h"

// Our own words in the control file; library.go has the same list. A fault of FN_EVERY
// with a code spares the functions that release something.
enum {
	WORD_ENGINE = WORD_FIRST_OWN, // a change drops every connection and the engine's whole state
	WORD_INITS,
	WORD_CONNECTIONS,
	WORD_EMBEDDED, // engines that run in a process
	WORD_GROUPS,
	WORD_FIELD_GROUPS,
	WORD_WATCHES, // pairs of group and field group
	WORD_HEALTH_WATCHES,
	WORD_FAIL_AT,   // calls until the failing call; 0 for no failure
	WORD_FAIL_CODE, // its code, negated
	WORD_FAILED,    // the function that failed in that call, plus 1
	WORD_MOST_VALUES,
	WORD_LIMITS,   // calls beyond a limit of DCGM
	WORD_VERSIONS, // structs of another size or version than the header's
	WORD_SEVERITY, // log severity of an embedded engine, plus 1
	WORD_SINCE,    // when the engine began, µs since 1970
};

enum {
	MAX_CONNECTIONS = 64,
	MAX_LINKS = 256,
	MAX_FIELDS = 4096, // DCGM's numbers end below 2000
	KINDS = 16,
	ANY = -1,
};

struct entity {
	int kind;
	int64_t id;
};

// Kinds of value that a field of an entity can have.
enum value_kind { VALUE_NONE, VALUE_NUMBER, VALUE_TEXT, VALUE_BLANK, VALUE_STATUS, VALUE_OMITTED };

struct value {
	int kind; // of the entity; ANY for all
	int64_t id;
	int field; // 0: the slot is free
	enum value_kind what;
	double base, slope; // number: base + slope × seconds since the epoch
	int code;           // status, or which blank
	char *text;
};

// A table of values by entity and field.
struct values {
	struct value *slots;
	size_t capacity, used;
};

struct xid {
	struct entity of;
	int64_t micros;
	int64_t code;
};

struct freeze {
	int kind;
	int64_t id;
	int64_t asked;  // when the test requested it
	int64_t micros; // when it began
};

struct links {
	int kind;
	unsigned id;
	int count;
	int state[MAX_LINKS];
};

struct state {
	uint64_t generation;
	char version[64], library[64];
	int down;           // result of connecting, 0 if it works
	int no_embedding;   // result of starting an embedded engine
	int no_profiling;   // result of profiling calls
	int unlisted[DCGM_FE_COUNT]; // by kind of entity: result of listing
	int links_version;  // the newest that the library accepts
	int order;          // of replies: 0 as requested, 1 reversed
	unsigned counts;    // number of entries that all lists report; 0 for the real number
	int64_t epoch;      // µs since 1970
	int late;           // thousandths of its interval that every other poll comes late
	char types[MAX_FIELDS];  // of fields; 0 unknown
	struct range {
		double min, max;
	} ranges[MAX_FIELDS]; // by field: range of the values that the script does not set
	struct entity *entities;
	int entity_count;
	struct entity *unsupported;
	int unsupported_count;
	struct values values, refused;
	struct freeze *freezes;
	int freeze_count;
	struct entity *lost;
	int lost_count;
	struct xid *xids;
	int xid_count;
	struct links *links;
	int links_count;
	dcgmMigHierarchyInfo_v2 *hierarchy;
	int hierarchy_count;
	struct cpu {
		unsigned id, first, last;
	} cpus[8];
	int cpu_count;
	int peers[32][32];
	struct metric_group {
		unsigned gpu;
		dcgmProfMetricGroupInfo_v2 group;
	} *metrics;
	int metric_count;
	struct incident {
		struct entity of;
		unsigned system, code;
		int health;
		char message[1024];
	} *incidents;
	int incident_count;
	struct fault faults[FN_EVERY + 1];
};

// table.c
const struct value *find_value(const struct values *t, int kind, int64_t id, int field);
struct value *put_value(struct values *t, int kind, int64_t id, int field);
void free_values(struct values *t);

// call.c
int64_t now_micros(void);
// enter counts a call, applies faults and takes the lock; S is current then. On any
// other result than DCGM_ST_OK the lock is free, and the call must return that result.
dcgmReturn_t enter(enum function f);
dcgmReturn_t leave(dcgmReturn_t r);
extern struct state *S;
#define LIE(count) ((count) = S->counts ? (__typeof__(count))S->counts : (count))
dcgmReturn_t wrong_version(void);
dcgmReturn_t beyond_limit(dcgmReturn_t r);

#define ENTER(name)                               \
	do {                                          \
		dcgmReturn_t entered = enter(FN_##name);  \
		if (entered != DCGM_ST_OK) return entered; \
	} while (0)

// engine.c
struct connection {
	uintptr_t handle; // 0: free
	uint64_t engine;
	bool embedded;
};
struct connection *connection_of(dcgmHandle_t h);
void sweep(void); // forgets the state of engines that have ended
// watched returns the time of a watched field's first value and its interval, or false
// without a watch.
bool watched(int kind, int64_t id, int field, int64_t *start, int64_t *every);
int64_t engine_since(dcgmHandle_t h); // when the engine began, µs
struct group {
	uintptr_t id, owner;
	dcgmGroupEntityPair_t members[DCGM_GROUP_MAX_ENTITIES_V2];
	int count;
	unsigned health;
};
const struct group *group_of(dcgmGpuGrp_t id);
int fields_of(dcgmFieldGrp_t id, const unsigned short **ids); // the number; 0 without such a group
bool has_entity(int kind, int64_t id);
bool profiling_field(int field);

// values.c: the engine's value of a field of an entity.
struct answer {
	dcgmReturn_t status;
	int64_t micros;
	char type;
	int64_t i64;
	double dbl;
	const char *text;
	bool omitted;
};
struct answer look(int kind, int64_t id, int field, bool live);

#endif
