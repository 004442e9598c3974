// The common part of the simulated libraries. The file "state" next to a library has the
// result of each function, and the library adds a line for each call to the file "calls".
//
// A line of state: KEY ACTION [NUMBER or WORD …]. KEY is the function's name,
// then a device, then an argument, each after a dot and each optional. The longest
// matching key counts. A function without a line returns "not supported".
//   ok V …         success; outputs are the numbers or the word
//   status N       status N, outputs untouched
//   keep           success, outputs untouched
//   hang           waits for a file "release" next to the library, then fails
//   late           waits like hang, then succeeds
//   abort          ends the process
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 2, VALUES = 4 };

typedef struct {
	char action[16], word[128];
	uint64_t v[VALUES];
	int n;
} answer;

static void next_to(char *path, const char *name) {
	Dl_info self;
	if (!dladdr((void *)next_to, &self))
		abort();
	snprintf(path, PATH_MAX, "%s", self.dli_fname);
	char *slash = strrchr(path, '/');
	snprintf(slash + 1, PATH_MAX - (size_t)(slash + 1 - path), "%s", name);
}

static void journal(const char *text, uint64_t device, uint64_t argument) {
	char path[PATH_MAX], line[256];
	next_to(path, "calls");
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	int n = snprintf(line, sizeof line, "%s %llu %llu %ld\n", text, (unsigned long long)device,
		(unsigned long long)argument, syscall(SYS_gettid));
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}

static void die(const char *why, uint64_t device) {
	journal(why, device, 0);
	abort();
}

// find finds a key and reads its line.
static bool find(const char *key, answer *a) {
	char path[PATH_MAX], line[512], k[128];
	next_to(path, "state");
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	bool found = false;
	while (!found && fgets(line, sizeof line, f)) {
		int at = 0;
		if (sscanf(line, "%127s %15s%n", k, a->action, &at) != 2 || strcmp(k, key) != 0)
			continue;
		found = true;
		a->n = 0;
		char *s = line + at;
		s += strspn(s, " ");
		s[strcspn(s, "\n")] = 0;
		snprintf(a->word, sizeof a->word, "%s", s);
		for (char *end; a->n < VALUES; s = end) {
			uint64_t v = strtoull(s, &end, 0);
			if (end == s)
				break;
			a->v[a->n++] = v;
		}
	}
	fclose(f);
	return found;
}

static void wait_for_release(void) {
	char path[PATH_MAX];
	next_to(path, "release");
	struct stat st;
	while (stat(path, &st) != 0)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

// act performs the action of an answer and returns the status.
static int act(answer *a, bool found) {
	if (!found)
		return NOT_SUPPORTED;
	if (strcmp(a->action, "status") == 0)
		return (int)a->v[0];
	if (strcmp(a->action, "abort") == 0)
		die("abort", 0);
	if (strcmp(a->action, "hang") == 0) {
		wait_for_release();
		return NOT_SUPPORTED;
	}
	if (strcmp(a->action, "late") == 0)
		wait_for_release();
	if (strcmp(a->action, "ok") != 0)
		a->n = 0;
	return OK;
}
