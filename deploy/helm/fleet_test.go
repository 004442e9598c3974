package helm_test

import (
	"encoding/json"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestFleet: the server is what Pod Security calls restricted, and has its files as
// directories. That the program takes its flags and the example is tested next to it.
func TestFleet(t *testing.T) {
	o := render(t, "fleet")
	text, err := json.Marshal(o.others["Deployment"][0])
	if err != nil {
		t.Fatal(err)
	}
	spec := into[appsv1.Deployment](t, string(text)).Spec.Template.Spec
	c := &spec.Containers[0]
	if h := hosts(spec, c); h != nil {
		t.Errorf("it has %q of the host", h)
	}
	sc := c.SecurityContext
	if *spec.AutomountServiceAccountToken || !*spec.SecurityContext.RunAsNonRoot || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem ||
		!slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("it may do more than it needs: %+v, %+v", spec.SecurityContext, sc)
	}
	checkMounts(t, spec, c)
}
