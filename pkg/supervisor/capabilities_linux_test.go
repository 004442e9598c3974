package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleEnv makes the test binary play a part in a process of its own.
const roleEnv = "CAPABILITIES_TEST_ROLE"

// beRole does what a process that TestDropAndRegain started is for.
func beRole() {
	role := os.Getenv(roleEnv)
	if role == "" {
		return
	}
	if err := play(role, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // it is main now
	}
	os.Exit(0) //nolint:forbidigo // it is main now
}

// play is what a process that this test started does.
func play(role string, out io.Writer) error {
	file := ""
	if len(os.Args) > 1 {
		file = os.Args[1]
	}
	switch role {
	case "parent without new privileges":
		// For this thread, from which the children will be started.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		return parent(out, file)
	case "parent":
		return parent(out, file)
	case "child":
		return report(out, "child", file)
	case "orphan":
		time.Sleep(time.Hour) // until the parent-death signal
	}
	return fmt.Errorf("no role %q", role)
}

// parent drops its capabilities and starts children, one of which outlives it
// unless its parent-death signal works.
func parent(out io.Writer, file string) error {
	stop := make(chan struct{})
	defer close(stop)
	for range 8 { // so that there are threads to miss, busy ones and new ones
		go churn(stop)
	}
	if err := report(out, "before", file); err != nil {
		return err
	}
	dropped, err := DropCapabilities()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "dropped %v\n", dropped)
	for range 100 { // threads that have been started since
		if err := verifyDropped(); err != nil {
			return err
		}
		runtime.Gosched()
	}
	if err := report(out, "after", file); err != nil {
		return err
	}
	again, err := DropCapabilities()
	if err != nil || again != 0 {
		return fmt.Errorf("a second Drop took %v: %w", again, err)
	}
	if err := role("child", file).Run(); err != nil {
		return fmt.Errorf("run child: %w", err)
	}
	runtime.LockOSThread()
	orphan := role("orphan")
	orphan.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := orphan.Start(); err != nil {
		return fmt.Errorf("start orphan: %w", err)
	}
	fmt.Fprintln(out, "end")
	return nil
}

func churn(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // never unlocked, so the thread ends
			close(done)
		}()
		<-done
		time.Sleep(time.Millisecond)
	}
}

// report prints what this process may do, by the kernel's word and by trying.
func report(out io.Writer, who, file string) error {
	effective, err := effectiveCapabilities()
	if err != nil {
		return err
	}
	_, err = os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	fmt.Fprintf(out, "%s effective=%v reads=%t\n", who, effective, err == nil)
	return nil
}

func role(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+name)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// effectiveCapabilities returns the effective capabilities of the calling thread, which are
// those of the process unless something has changed single threads.
func effectiveCapabilities() (Capabilities, error) {
	c, err := getCapabilities()
	if err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return c.effective, nil
}

// needRoot skips unless this process is root with capabilities to lose.
func needRoot(t *testing.T) Capabilities {
	t.Helper()
	c, err := getCapabilities()
	if err != nil {
		t.Fatal(err)
	}
	const dacOverride = 1 << unix.CAP_DAC_OVERRIDE
	if os.Geteuid() != 0 || c.effective&dacOverride == 0 || c.permitted&dacOverride == 0 {
		t.Skip("skipped: needs root with CAP_DAC_OVERRIDE")
	}
	return c.effective
}

// TestDropAndRegain is the whole life: a parent that drops everything on all
// threads, and children that get it back at exec and die with the parent.
func TestDropAndRegain(t *testing.T) {
	full := needRoot(t)
	for _, as := range []string{"parent", "parent without new privileges"} {
		t.Run(as, func(t *testing.T) {
			// A file that root may read only by overriding its mode.
			file := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, 0); err != nil {
				t.Fatal(err)
			}
			cmd := role(as, file)
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			cmd.Stdout, cmd.Stderr = write, write
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			write.Close()
			// The orphan holds the pipe too: reading ends when it has died.
			if err := read.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			var got []string
			lines := bufio.NewScanner(read)
			for lines.Scan() {
				got = append(got, lines.Text())
			}
			if err := lines.Err(); err != nil {
				t.Errorf("the child did not die with its parent: %v", err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("parent: %v", err)
			}
			want := []string{
				fmt.Sprintf("before effective=%v reads=true", full),
				fmt.Sprintf("dropped %v", full),
				"after effective=0000000000000000 reads=false",
				fmt.Sprintf("child effective=%v reads=true", full),
				"end",
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestEffectiveIsThatOfProc(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	want, err := effectiveOf(status)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := effectiveCapabilities(); err != nil || got != want {
		t.Errorf("got %v, %v; /proc says %v", got, err, want)
	}
}

func TestEffectiveOf(t *testing.T) {
	f := func(status string, want Capabilities, ok bool) {
		t.Helper()
		got, err := effectiveOf([]byte(status))
		if got != want || (err == nil) != ok {
			t.Errorf("%q: got %v, %v", status, got, err)
		}
	}
	f("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000003000\n", 0x3000, true)
	f("CapEff:\t0000000000000000\n", 0, true)
	f("Name:\tx\n", 0, false)
	f("CapEff:\tno\n", 0, false)
}
