// A minimal nv-hostengine with NVIDIA's own library: "hostengine 5555" listens on
// that port of loopback, "hostengine /path" on a Unix socket. It prints "ready" when
// it listens, and runs until it is killed.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dcgm_agent.h>
#include <dcgm_structs.h>

static void *library;

// function ends the process if the library lacks a function, because nothing can be tested then.
static void *function(const char *name) {
	void *f = dlsym(library, name);
	if (!f) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return f;
}

static void check(const char *what, int code) {
	if (code != DCGM_ST_OK) {
		fprintf(stderr, "%s: %d\n", what, code);
		exit(1);
	}
}

int main(int argc, char **argv) {
	if (argc != 2 || !(library = dlopen("libdcgm.so.4", RTLD_NOW | RTLD_GLOBAL))) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "want a port or a path");
		return 1;
	}
	__typeof__(&dcgmInit) init = (__typeof__(&dcgmInit))function("dcgmInit");
	__typeof__(&dcgmStartEmbedded_v2) start = (__typeof__(&dcgmStartEmbedded_v2))function("dcgmStartEmbedded_v2");
	__typeof__(&dcgmEngineRun) run = (__typeof__(&dcgmEngineRun))function("dcgmEngineRun");

	dcgmStartEmbeddedV2Params_v1 params;
	memset(&params, 0, sizeof params);
	params.version = dcgmStartEmbeddedV2Params_version1;
	params.opMode = DCGM_OPERATION_MODE_AUTO;
	params.logFile = getenv("HOSTENGINE_LOG");
	params.severity = params.logFile ? DcgmLoggingSeverityDebug : DcgmLoggingSeverityNone;
	check("dcgmInit", init());
	check("dcgmStartEmbedded_v2", start(&params));
	if (argv[1][0] == '/')
		check("dcgmEngineRun", run(0, argv[1], 0));
	else
		check("dcgmEngineRun", run((unsigned short)atoi(argv[1]), "127.0.0.1", 1));
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
