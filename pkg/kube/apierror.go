package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Reasons of the API server, for the label reason, in addition to ReasonMalformed and ReasonTooLarge.
const (
	ReasonNoNode       = "no_node_name" // APIOptions.Node is empty
	ReasonNoConfig     = "no_config"    // neither a service account in this pod nor KUBECONFIG
	ReasonUnauthorized = "unauthorized" // the API server rejects our token or certificate
	ReasonForbidden    = "forbidden"    // a permission is missing
	ReasonNotServed    = "not_served"   // it serves no version of the resource that this package knows
	ReasonUnreachable  = "unreachable"  // no answer in time, or "try later": 429, 5xx
	ReasonTLS          = "tls"          // no trust: certificate, authority, or a wrong clock
)

var apiReasons = []string{ReasonNoNode, ReasonNoConfig, ReasonUnauthorized, ReasonForbidden, ReasonNotServed,
	ReasonUnreachable, ReasonTLS, ReasonTooLarge, ReasonMalformed}

var (
	errNoNode = errors.New("the name of this node is unknown: " +
		"set NODE_NAME from the downward API (fieldRef spec.nodeName)")
	errNoConfig   = errors.New("cannot find the API server")
	errNotServed  = errors.New("it offers none of v1, v1beta2 and v1beta1")
	errNoAnswer   = errors.New("no answer in time")
	errShortWatch = errors.New("the watch ended at once, without an event")
	errTooMany    = errors.New("the objects of this node exceed the memory limit: delete pods that have ended")
	errNoVersion  = errors.New("the answer is not a list of an API server: it has no resource version")
)

// reasonOf classifies an error by the person who can repair it. All errors that pass by themselves have one reason, so
// that an outage with many symptoms is reported once.
func reasonOf(err error) string {
	var status apierrors.APIStatus
	code := 0
	if errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	switch {
	case errors.Is(err, errNoConfig):
		return ReasonNoConfig
	case errors.Is(err, errNotServed), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return ReasonNotServed
	case apierrors.IsUnauthorized(err):
		return ReasonUnauthorized
	case apierrors.IsForbidden(err):
		return ReasonForbidden
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return ReasonUnreachable
	case isTooLarge(err):
		return ReasonTooLarge
	case isTLS(err):
		return ReasonTLS
	case isNetwork(err):
		return ReasonUnreachable
	}
	return ReasonMalformed
}

// isTooLarge reports whether an answer or a list exceeds our limits.
func isTooLarge(err error) bool {
	var answer *http.MaxBytesError
	return errors.Is(err, errTooMany) || errors.As(err, &answer)
}

func isTLS(err error) bool {
	_, verify := errors.AsType[*tls.CertificateVerificationError](err) // wraps the errors of package x509
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return verify || record || alert || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

func isNetwork(err error) bool {
	var network net.Error // *url.Error, *net.OpError, time limits of all kinds
	return errors.As(err, &network) || errors.Is(err, errNoAnswer) || errors.Is(err, errShortWatch) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// resource names the resource in messages.
type resource struct{ group, name string }

// explain names the failed attempt and, if a person must help, the remedy.
func (r resource) explain(verb string, err error) error {
	did := fmt.Sprintf("%s %s", verb, r.name)
	switch reasonOf(err) {
	case ReasonForbidden:
		return fmt.Errorf("%s: grant the verbs list and watch on resource %q in apiGroup %q to this service account by a ClusterRole: %w", did, r.name, r.group, err)
	case ReasonUnauthorized:
		return fmt.Errorf("%s: the API server does not accept the token or certificate; it may have expired, or be for another cluster: %w", did, err)
	case ReasonNotServed:
		return fmt.Errorf("%s: the API server does not serve it in apiGroup %q: %w", did, r.group, err)
	case ReasonTLS:
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
			return fmt.Errorf("%s: a certificate has expired or is not valid yet, or the clock of this node is wrong: %w", did, err)
		}
	}
	return fmt.Errorf("%s: %w", did, err)
}
