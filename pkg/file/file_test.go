package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRead reads every kind of file, by its name and below a root.
func TestRead(t *testing.T) {
	const limit = 1000
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) { must(t, os.WriteFile(at(name), []byte(text), 0o644)) }
	write("good", "text")
	write("empty", "")
	write("full", strings.Repeat("x", limit))
	write("large", strings.Repeat("x", limit+1))
	write("10 GB", "")
	must(t, os.Truncate(at("10 GB"), 10<<30))
	must(t, os.Mkdir(at("directory"), 0o755))
	must(t, syscall.Mkfifo(at("FIFO"), 0o644))
	l, err := net.Listen("unix", at("socket"))
	must(t, err)
	defer l.Close()
	for name, to := range map[string]string{"link": "good", "loop": "loop", "zero": "/dev/zero", "tty": "/dev/tty", "kernel": "/proc/kallsyms", "nowhere": "absent"} {
		must(t, os.Symlink(to, at(name)))
	}
	root := testkit.Get(os.OpenRoot(dir))(t)
	defer root.Close()
	for _, tt := range []struct {
		name, want string
		err        error
		says       string
	}{
		{"good", "text", nil, ""},
		{"link", "text", nil, ""},
		{"empty", "", nil, ""},
		{"full", strings.Repeat("x", limit), nil, ""},
		{"large", "", ErrTooLarge, "1001 bytes"},
		{"10 GB", "", ErrTooLarge, "10737418240 bytes"},
		{"kernel", "", ErrTooLarge, "more than 1000 bytes"}, // the kernel states a size of 0
		{"directory", "", ErrNotRegular, "a directory"},
		{"FIFO", "", ErrNotRegular, "a FIFO"},
		{"socket", "", ErrNotRegular, "a socket"},
		{"zero", "", ErrNotRegular, "a device"},
		{"tty", "", ErrNotRegular, "a device"},
		{"absent", "", fs.ErrNotExist, "no such file"},
		{"nowhere", "", fs.ErrNotExist, "no such file"},
		{"loop", "", syscall.ELOOP, ""},
	} {
		check := func(how string, data []byte, err error) {
			t.Helper()
			testkit.ErrorIf(t, string(data) != tt.want || !errors.Is(err, tt.err), "%s %q: %d bytes, %v; want %d bytes, %v", how, tt.name, len(data), err, len(tt.want), tt.err)
			if err != nil && (!strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), tt.name)) {
				t.Errorf("%s: %v, want the name %q and %q", how, err, tt.name, tt.says)
			}
		}
		data, err := NewReader(limit).Read(t.Context(), at(tt.name))
		check("read", data, err)
		if target, _ := os.Readlink(at(tt.name)); !filepath.IsAbs(target) { // a root does not follow links that leave it
			data, err = ReadIn(root, tt.name, limit)
			check("read below a root", data, err)
		}
	}
}

// replaced is a directory in which a file is replaced between its check and its opening.
type replaced string

func (replaced) Stat(string) (fs.FileInfo, error) { return os.Stat("file_test.go") }
func (r replaced) OpenFile(_ string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(string(r), flag, perm)
}

// TestReplacedMeanwhile: no read waits for a FIFO that replaces the file after the check.
func TestReplacedMeanwhile(t *testing.T) {
	fifo, large := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(large, make([]byte, 1<<20+1), 0o644))
	must(t, syscall.Mkfifo(fifo, 0o644))
	for second, want := range map[string]error{fifo: ErrNotRegular, "/dev/zero": ErrNotRegular, large: ErrTooLarge} {
		_, err := ReadIn(replaced(second), "name", 1<<20)
		testkit.ErrorIf(t, !errors.Is(err, want), "a file that becomes %q: %v, want %v", second, err, want)
	}
}

// TestHungFileSystem: no read waits long or after its context has ended, the number of abandoned calls is bounded, and
// reads work when the system answers again.
func TestHungFileSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(10)
		answer := make(chan struct{})
		r.read = func(path string) ([]byte, error) {
			if path == "/hung" {
				<-answer
			}
			return []byte(path), nil
		}
		for n := range maxCalls {
			begin := time.Now()
			_, err := r.Read(t.Context(), "/hung")
			testkit.ErrorIf(t, !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), "/hung"), "read %d of a hung file system: %v", n, err)
			testkit.Equal(t, fmt.Sprintf("read %d took", n), patience, time.Since(begin))
			if n > 0 && n < maxCalls-1 {
				continue
			}
			data, err := r.Read(t.Context(), "/good")
			testkit.ErrorIf(t, (err == nil) != (n == 0) || string(data) != "/good" && n == 0, "read of another file after %d that hang: %q, %v", n+1, data, err)
		}
		begin := time.Now()
		_, err := r.Read(t.Context(), "/hung")
		testkit.ErrorIf(t, !errors.Is(err, ErrHangs) || time.Since(begin) != patience, "one read more: %v after %v, want an error after %v", err, time.Since(begin), patience)
		close(answer)
		synctest.Wait()
		data, err := r.Read(t.Context(), "/hung")
		testkit.ErrorIf(t, err != nil || string(data) != "/hung" || len(r.calls) > 0, "read when the system answers again: %q, %v, %d calls", data, err, len(r.calls))
	})
}

// TestManyReadsAtATime: reads that do not hang wait for each other, and each ends with its context.
func TestManyReadsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(10)
		r.read = func(string) ([]byte, error) {
			time.Sleep(time.Millisecond)
			return []byte("text"), nil
		}
		var all sync.WaitGroup
		for range 100 * maxCalls {
			all.Go(func() {
				data, err := r.Read(t.Context(), "/good")
				testkit.ErrorIf(t, string(data) != "text" || err != nil, "read %q, %v", data, err)
			})
		}
		all.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		_, err := r.Read(ctx, "/slow")
		testkit.ErrorIf(t, !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHangs), "read = %v, want that of the context", err)
		time.Sleep(time.Millisecond)
	})
}
