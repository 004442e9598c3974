package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"warpgauge/pkg/field"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ClaimName identifies a ResourceClaim.
type ClaimName struct{ Namespace, Name string }

const (
	claimQPS, claimBurst = 10, 64          // requests per second: a claim is read once, by name
	maxClaims            = 1024            // maximum number of claims read; a node has about as many as devices
	claimRetry           = 5 * time.Minute // before failed claims are read again
	claimLimit           = 5 * time.Second // for all claims together; owners wait for it
)

// claimReader reads the ResourceClaims that the kubelet lists. The kubelet does not say whether a claim is for admin
// access, which only observes devices that others use (KEP-5018). The allocation of a running pod's claim does not
// change, so each claim is read once.
type claimReader struct {
	s        *APIServer
	seen     uint64                     // version of the allocations
	asked    time.Time                  // when claims were last read
	known    map[ClaimName][]DeviceName // claims already read, with the devices that each has admin access to
	failed   bool                       // some claims could not be read
	reported bool
}

const claimCheck = time.Second // how often the allocations are compared

func (r *claimReader) run(ctx context.Context) {
	ticker := time.NewTicker(claimCheck)
	defer ticker.Stop()
	for {
		if a := r.s.o.Kubelet.Snapshot(); r.asked.IsZero() || a.Version != r.seen || r.failed && time.Since(r.asked) >= claimRetry {
			r.fetchClaims(ctx, a)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// fetchClaims reads the unknown claims and publishes. A claim that cannot be read counts as a user of its devices.
func (r *claimReader) fetchClaims(ctx context.Context, a *Allocations) {
	names := claimNames(a)
	maps.DeleteFunc(r.known, func(name ClaimName, _ []DeviceName) bool {
		_, found := slices.BinarySearchFunc(names, name, ClaimName.compare)
		return !found
	})
	r.seen = a.Version
	unread := slices.DeleteFunc(slices.Clone(names), func(name ClaimName) bool { _, known := r.known[name]; return known })
	err := r.ask(ctx, unread)
	if ctx.Err() != nil {
		return
	}
	r.asked, r.failed = time.Now(), err != nil
	next := make(map[ClaimName][]DeviceName, len(names))
	for _, name := range names {
		next[name] = r.known[name]
	}
	r.s.publish(func(m *Metadata) bool {
		changed := !maps.EqualFunc(m.Claims, next, slices.Equal) || m.ClaimsTime.IsZero() && a.Version != 0
		m.Claims = next
		if a.Version != 0 {
			m.ClaimsTime = time.Now()
		}
		return changed
	})
	if r.failed && !r.reported {
		r.reported = true
		r.s.log.Warn("cannot read some resource claims, so pods that only observe devices (admin access) count as users; "+
			"grant the verb get on resource \"resourceclaims\" in apiGroup \"resource.k8s.io\" to this service account", zap.Error(err))
	}
}

// ask reads claims and returns the first error. After a refusal it skips the other claims of that namespace: under the
// GPU Operator the exporter may read only claims in its own namespace.
func (r *claimReader) ask(ctx context.Context, unread []ClaimName) (first error) {
	if len(unread) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimLimit)
	defer cancel()
	c, err := r.s.dial(claimQPS, claimBurst)
	if err != nil {
		return err
	}
	defer c.close()
	refused := map[string]bool{} // namespaces
	for _, name := range unread[:min(len(unread), maxClaims)] {
		if refused[name.Namespace] {
			continue
		}
		var claim apiObject
		_, err := resource{group: resourceGroup}.inAnyVersion(func(version string) error {
			return read(ctx, c.Get().AbsPath("apis", resourceGroup, version, "namespaces", name.Namespace, "resourceclaims", name.Name), &claim)
		})
		if err == nil {
			r.known[name] = nil
			for _, result := range claim.Status.Allocation.Devices.Results {
				if result.AdminAccess {
					r.known[name] = append(r.known[name], result.DeviceName)
				}
			}
			continue
		}
		refused[name.Namespace] = apierrors.IsForbidden(err)
		first = cmp.Or(first, err)
	}
	return first
}

// claimNames returns the claims with devices of the vendors, sorted, each once.
func claimNames(a *Allocations) (out []ClaimName) {
	for _, p := range a.Pods {
		for _, c := range p.Containers {
			for i := range c.Claims {
				if field.VendorByDriver(c.Claims[i].Device.Driver) != nil {
					out = append(out, ClaimName{c.Claims[i].Namespace, c.Claims[i].Name})
				}
			}
		}
	}
	slices.SortFunc(out, ClaimName.compare)
	return slices.Compact(out)
}

func (c ClaimName) compare(d ClaimName) int { return PodName(c).Compare(PodName(d)) }

// Uses reports whether a claim uses its device. It returns false if the claim only observes the device (admin access),
// or has not been read yet.
func (m *Metadata) Uses(c Claim) bool {
	if m == nil || m.Claims == nil {
		return true
	}
	looks, read := m.Claims[ClaimName{c.Namespace, c.Name}]
	return read && !slices.Contains(looks, c.Device)
}
