package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/config"
	"github.com/urfave/cli/v3"

	"warpgauge/extensions/remote/fleet"
)

// clientFlags returns the flags that all client commands share.
func clientFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "server", Value: "http://127.0.0.1:4321", Sources: env("SERVER"), Usage: "the server's URL for operators"},
		&cli.StringFlag{Name: "token-file", Sources: env("CLIENT_TOKEN_FILE"), Usage: "file with a bearer token"},
		&cli.StringFlag{Name: "ca-file", Sources: env("CLIENT_CA_FILE"), Usage: "certificates that the server's must be signed by"},
		&cli.StringFlag{Name: "cert-file", Sources: env("CLIENT_CERT_FILE"), Usage: "client certificate"},
		&cli.StringFlag{Name: "key-file", Sources: env("CLIENT_KEY_FILE"), Usage: "its key"},
	}
}

func statusCommand(out io.Writer) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "print cohorts and rollouts, or with a cohort its agents", ArgsUsage: "[COHORT]", Flags: clientFlags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if name := cmd.Args().First(); name != "" {
				return printAgents(ctx, cmd, out, name)
			}
			return printFleet(ctx, cmd, out, http.MethodGet, "/api/v1/fleet")
		},
	}
}

func verbCommand(out io.Writer, verb, usage string) *cli.Command {
	return &cli.Command{
		Name: verb, Usage: usage, ArgsUsage: "COHORT", Flags: clientFlags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() != 1 {
				return errors.New("name one cohort")
			}
			return printFleet(ctx, cmd, out, http.MethodPost, "/api/v1/cohorts/"+url.PathEscape(cmd.Args().First())+"/"+verb)
		},
	}
}

const maxAnswer = 256 << 20

// ask sends a request to the server in the flags and decodes its answer.
func ask(ctx context.Context, cmd *cli.Command, method, path string, answer any) error {
	base := strings.TrimRight(cmd.String("server"), "/")
	if u, err := url.Parse(base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--server is %q: write a URL such as http://127.0.0.1:4321", base)
	}
	settings := config.HTTPClientConfig{
		TLSConfig:   config.TLSConfig{CAFile: cmd.String("ca-file"), CertFile: cmd.String("cert-file"), KeyFile: cmd.String("key-file")},
		ProxyConfig: config.ProxyConfig{ProxyFromEnvironment: true},
	}
	if path := cmd.String("token-file"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		token, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		settings.Authorization = &config.Authorization{Type: "Bearer", Credentials: config.Secret(strings.TrimSpace(token))}
	}
	client, err := config.NewClientFromConfig(settings, "warpgauge-fleet", config.WithKeepAlivesDisabled())
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	client.Timeout = time.Minute
	request, err := http.NewRequestWithContext(ctx, method, base+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // the body was read completely
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s: %s", response.Status, bytes.TrimSpace(body))
	}
	if err == nil {
		err = json.Unmarshal(body, answer)
	}
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	return nil
}

func printFleet(ctx context.Context, cmd *cli.Command, out io.Writer, method, path string) error {
	var f fleet.Fleet
	if err := ask(ctx, cmd, method, path, &f); err != nil {
		return err
	}
	if f.Directory.Err != "" {
		fmt.Fprintf(out, "the directory was refused, the one before stays in use: %s\n", f.Directory.Err) //nolint:errcheck // to the terminal
	}
	if f.StateErr != "" {
		fmt.Fprintf(out, "the state cannot be written, no stage begins: %s\n", f.StateErr) //nolint:errcheck // to the terminal
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COHORT\tLIST\tROLLOUT\tSTAGE\tCURRENT\tPENDING\tREFUSED\tFAILING\tSILENT\tOBSERVED\tREASON")
	for i := range f.Cohorts {
		c := &f.Cohorts[i]
		r := c.Rollout
		if r == nil {
			r = &fleet.Rollout{State: "none"}
		}
		fmt.Fprintf(w, "%s\t%s %.8s\t%s\t%d/%d %.0fs/%.0fs\t", c.Name, c.List, c.Directory, r.State, r.Stage, c.Stages, r.Soaked, c.Soak)
		for _, condition := range []string{fleet.Current, fleet.Waiting, fleet.Refused, fleet.Failing, fleet.Silent, fleet.Observed} {
			fmt.Fprintf(w, "%d\t", c.Agents[condition])
		}
		fmt.Fprintln(w, r.Reason)
	}
	return w.Flush()
}

func printAgents(ctx context.Context, cmd *cli.Command, out io.Writer, cohort string) error {
	var a fleet.Agents
	if err := ask(ctx, cmd, http.MethodGet, "/api/v1/agents?cohort="+url.QueryEscape(cohort), &a); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tCONDITION\tWANTED\tANSWERED\tVERSION\tSEEN\tWHY")
	for i := range a.Agents {
		s := &a.Agents[i]
		why := s.Error
		if why == "" && s.Refused != "" {
			why = fmt.Sprintf("refused %.8s: %s", s.Refused, s.Refusal)
		}
		seen := a.Time.Sub(s.Seen).Truncate(time.Second)
		fmt.Fprintf(w, "%s\t%s\t%.8s\t%.8s\t%s\t%v\t%s\n", cmp.Or(s.Host, s.UID), s.Condition, s.Wanted, s.Answered, s.Version, seen, why)
	}
	return w.Flush()
}
