//go:build linux && cgo

package dcgm

// #cgo CFLAGS: -std=c11 -Wall -Wextra
// #include <stdlib.h>
// #include "calls_linux.h"
import "C"

import (
	"fmt"
	"slices"

	"warpgauge/pkg/dl"
)

// library is a loaded libdcgm.so.4: addresses, looked up once. Its calls may be
// made by several goroutines; DCGM serves them one after the other.
type library struct {
	dl    *dl.Library
	table *C.wg_table // in C memory: calls that never return may still read it
	lacks []string    // functions that we call where there are
}

// The functions without which nothing works.
var required = []string{
	"dcgmInit", "dcgmShutdown", "dcgmGetEntityGroupEntities", "dcgmGroupCreate", "dcgmGroupAddEntity", "dcgmGroupDestroy",
	"dcgmFieldGroupCreate", "dcgmFieldGroupDestroy", "dcgmWatchFields", "dcgmUnwatchFields", "dcgmEntitiesGetLatestValues",
}

// load opens the first of names that the loader accepts and looks everything up.
func load(names []string) (*library, error) {
	so, err := dl.Open(names)
	if err != nil {
		return nil, err
	}
	l := &library{dl: so, table: (*C.wg_table)(C.calloc(1, C.sizeof_wg_table))}
	for i := range int(C.WG_FUNCTION_COUNT) {
		name := C.GoString(C.wg_function_name(C.int(i)))
		p, err := so.Lookup(name)
		if err != nil {
			l.lacks = append(l.lacks, name)
			continue
		}
		l.table.at[i] = p
	}
	for _, name := range required {
		if !l.has(name) {
			path := so.Path()
			l.close()
			return nil, fmt.Errorf("library %s lacks %s, which libdcgm.so.4 has had since 4.0", path, name)
		}
	}
	return l, nil
}

func (l *library) has(name string) bool { return !slices.Contains(l.lacks, name) }

// path is the file that was loaded.
func (l *library) path() string { return l.dl.Path() }

// close unloads the library. No call may be in progress. The table stays: it is
// a few hundred bytes, and a call that was abandoned may still return to it.
func (l *library) close() {
	_ = l.dl.Close()
	l.table = nil
}

func (l *library) init() error     { return answer(C.wg_init(l.table)) }
func (l *library) shutdown() error { return answer(C.wg_shutdown(l.table)) }

// version is what the library tells of itself: "version:4.6.0;arch:x86_64;…".
func (l *library) version() (string, error) {
	var v C.wg_version2
	r := C.wg_version(l.table, 0, 0, &v)
	return C.GoString(&v.text[0]), answer(r)
}

func answer(r C.int) error {
	if r == 0 {
		return nil
	}
	return status(r)
}
