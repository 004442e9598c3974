package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	authentication "k8s.io/api/authentication/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	reviewFor    = 5 * time.Minute // how long the API server's answer holds
	maxReviews   = 1 << 17         // answers that are kept
	reviewWithin = 5 * time.Second
)

// reviewer asks an API server whose tokens are sent, and keeps good answers.
type reviewer struct {
	account  string // system:serviceaccount:NAMESPACE:NAME
	audience string
	api      *client
	slots    chan struct{} // requests to the API server at once

	mu    sync.Mutex
	known map[[sha256.Size]byte]review
}

var errRefused = errors.New("it is not a token of the service account")

type review struct {
	name string
	at   time.Time
}

// NewReview returns a function that reports the node of a token of the service account NAMESPACE/NAME, or its pod.
func NewReview(account, audience string, config *rest.Config) (func(context.Context, string) (string, error), error) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("%q names no service account: write NAMESPACE/NAME", account)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the slots limit requests
	api, err := newClient(config)
	if err != nil {
		return nil, err
	}
	r := &reviewer{
		account: "system:serviceaccount:" + namespace + ":" + name, audience: audience, api: api,
		slots: make(chan struct{}, 16), known: map[[sha256.Size]byte]review{},
	}
	return r.review, nil
}

func (r *reviewer) review(ctx context.Context, token string) (string, error) {
	sum := sha256.Sum256([]byte(token))
	r.mu.Lock()
	known := r.known[sum]
	r.mu.Unlock()
	switch age := time.Since(known.at); {
	case known.name != "" && age < reviewFor:
		return known.name, nil
	case known.name == "" && age < 10*time.Second:
		return "", errRefused
	case known.name == "": // a token that was good waits for no new one
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-time.After(reviewWithin):
			return "", errors.New("too many new tokens at once")
		}
	}
	name, err := r.ask(ctx, token)
	if err != nil && !errors.Is(err, errRefused) {
		return "", err
	}
	r.keep(sum, name)
	return name, err
}

// keep keeps an answer. Only refusals and old answers make room for others.
func (r *reviewer) keep(sum [sha256.Size]byte, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, sum)
	if len(r.known) >= maxReviews {
		maps.DeleteFunc(r.known, func(_ [sha256.Size]byte, v review) bool { return v.name == "" || time.Since(v.at) > 2*reviewFor })
	}
	if len(r.known) < maxReviews {
		r.known[sum] = review{name, time.Now()}
	}
}

func (r *reviewer) ask(ctx context.Context, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewWithin)
	defer cancel()
	var t authentication.TokenReview
	err := r.api.create(ctx, "apis/authentication.k8s.io/v1/tokenreviews", &authentication.TokenReview{
		TypeMeta: meta.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authentication.TokenReviewSpec{Token: token, Audiences: []string{r.audience}},
	}, &t)
	if err != nil {
		return "", err
	}
	user := t.Status.User
	if !t.Status.Authenticated || user.Username != r.account {
		return "", errRefused
	}
	if node := user.Extra["authentication.kubernetes.io/node-name"]; len(node) > 0 {
		return "node " + node[0], nil
	}
	return fmt.Sprint("pod ", user.Extra["authentication.kubernetes.io/pod-uid"]), nil // before Kubernetes 1.31
}
