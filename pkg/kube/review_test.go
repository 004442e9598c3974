package kube

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"warpgauge/internal/testkit"
)

// TestReview: the API server's answer decides whose a token is, and is kept.
func TestReview(t *testing.T) {
	r, good := reviewer{known: map[[sha256.Size]byte]review{}}, [sha256.Size]byte{31: 1}
	r.keep(good, "node n1")
	for i := range maxReviews + 1 { // refused tokens
		r.keep([sha256.Size]byte{byte(i), byte(i >> 8), byte(i >> 16)}, "")
	}
	testkit.ErrorIf(t, r.known[good].name == "" || len(r.known) > maxReviews, "%d answers, the good one is %q", len(r.known), r.known[good].name)
	asked := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		must(t, json.NewDecoder(r.Body).Decode(&q))
		asked++
		testkit.Equal(t, "path", "/apis/authentication.k8s.io/v1/tokenreviews", r.URL.Path)
		spec := q["spec"].(map[string]any)
		testkit.Equal(t, "audiences", fmt.Sprint([]any{"lists"}), fmt.Sprint(spec["audiences"]))
		status := map[string]any{"authenticated": spec["token"] != "bad", "user": map[string]any{
			"username": "system:serviceaccount:gpu:" + fmt.Sprint(spec["token"]), "extra": map[string]any{"authentication.kubernetes.io/node-name": []any{"n1"}},
		}}
		q["status"] = status
		w.Header().Set("Content-Type", "application/json")
		must(t, json.NewEncoder(w).Encode(q))
	}))
	defer api.Close()
	review := testkit.Get(NewReview("gpu/warpgauge", "lists", &rest.Config{Host: api.URL}))(t)
	for token, want := range map[string]string{"warpgauge": "node n1", "other": "", "bad": ""} {
		for range 2 {
			name, err := review(t.Context(), token)
			testkit.ErrorIf(t, name != want || (err == nil) != (want != ""), "token %s: %q, %v", token, name, err)
		}
	}
	testkit.Equal(t, "questions, one for each token", 3, asked)
	_, err := NewReview("gpu", "lists", &rest.Config{})
	testkit.ErrorIf(t, err == nil, "a name without a namespace is taken")
}
