package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/file"
	"warpgauge/pkg/fleet"
)

// clientFlags are those of all commands that ask a server.
func clientFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "server", Value: "http://127.0.0.1:4321", Sources: env("SERVER"), Usage: "the server's URL for operators"},
		&cli.StringFlag{Name: "token-file", Sources: env("CLIENT_TOKEN_FILE"), Usage: "file with a bearer token"},
		&cli.StringFlag{Name: "ca-file", Sources: env("CLIENT_CA_FILE"), Usage: "certificates that the server's must be signed by"},
		&cli.StringFlag{Name: "cert-file", Sources: env("CLIENT_CERT_FILE"), Usage: "client certificate"},
		&cli.StringFlag{Name: "key-file", Sources: env("CLIENT_KEY_FILE"), Usage: "its key"},
		&cli.BoolFlag{Name: "json", Usage: "print the server's answer"},
	}
}

func statusCommand(out io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "print cohorts and rollouts, and with a cohort its agents",
		ArgsUsage: "[COHORT]",
		Flags: append(clientFlags(),
			&cli.StringFlag{Name: "condition", Usage: "with a cohort, only agents that are current, pending, refused, failing, silent or observed"}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c, err := newClient(ctx, cmd)
			if err != nil {
				return err
			}
			if cmd.Args().Len() > 1 {
				return fmt.Errorf("unexpected argument %q", cmd.Args().Get(1))
			}
			if name := cmd.Args().First(); name != "" {
				return c.agents(ctx, out, url.Values{"cohort": {name}, "condition": {cmd.String("condition")}})
			}
			return c.fleet(ctx, out, http.MethodGet, "/api/v1/fleet")
		},
	}
}

func verbCommand(out io.Writer, verb, usage string) *cli.Command {
	return &cli.Command{
		Name: verb, Usage: usage, ArgsUsage: "COHORT", Flags: clientFlags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c, err := newClient(ctx, cmd)
			if err != nil {
				return err
			}
			if cmd.Args().Len() != 1 {
				return errors.New("name one cohort")
			}
			return c.fleet(ctx, out, http.MethodPost, "/api/v1/cohorts/"+url.PathEscape(cmd.Args().First())+"/"+verb)
		},
	}
}

func checkCommand(out io.Writer) *cli.Command {
	return &cli.Command{
		Name: "check", Usage: "check a directory as the server does", ArgsUsage: "DIRECTORY",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() != 1 {
				return errors.New("name one directory")
			}
			p, err := fleet.ReadDirectory(cmd.Args().First(), parseYAML)
			if err != nil {
				return err
			}
			for _, c := range p.Cohorts {
				for _, w := range c.Warnings {
					fmt.Fprintf(out, "%s: %s\n", c.Name, w) //nolint:errcheck // to the terminal
				}
			}
			_, err = fmt.Fprintf(out, "%d cohorts are good\n", len(p.Cohorts))
			return err
		},
	}
}

// client asks a server.
type client struct {
	base, token string
	http        *http.Client
	raw         bool // print answers as they are
}

const maxClientFile = 1 << 20

func newClient(ctx context.Context, cmd *cli.Command) (*client, error) {
	c := &client{base: strings.TrimRight(cmd.String("server"), "/"), raw: cmd.Bool("json")}
	if u, err := url.Parse(c.base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--server is %q: write a URL such as http://127.0.0.1:4321", c.base)
	}
	files := file.NewReader(maxClientFile)
	if path := cmd.String("token-file"); path != "" {
		text, err := files.Read(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		first, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
		c.token = string(bytes.TrimSpace(first))
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := cmd.String("ca-file"); path != "" {
		text, err := files.Read(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("--ca-file: it has no certificate")
		}
	}
	if path := cmd.String("cert-file"); path != "" {
		pair, err := tls.LoadX509KeyPair(path, cmd.String("key-file"))
		if err != nil {
			return nil, fmt.Errorf("--cert-file: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	c.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: t, Proxy: http.ProxyFromEnvironment}}
	return c, nil
}

const maxAnswer = 64 << 20

func (c *client) ask(ctx context.Context, method, path string, answer any) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // all of it was read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the server: %w", err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the server answers %s: %s", response.Status, bytes.TrimSpace(body))
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	return body, nil
}

func (c *client) fleet(ctx context.Context, out io.Writer, method, path string) error {
	var f fleet.Fleet
	body, err := c.ask(ctx, method, path, &f)
	if err != nil {
		return err
	}
	if c.raw {
		_, err := out.Write(body)
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
		cohort := &f.Cohorts[i]
		state, stage, reason := "none", "", ""
		if r := cohort.Rollout; r != nil {
			state, stage, reason = string(r.State), fmt.Sprintf("%d/%d %.0fs/%.0fs", r.Stage, r.Stages, r.Soaked, r.Soak), r.Reason
		}
		a := cohort.Agents
		fmt.Fprintf(w, "%s\t%s %.8s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", cohort.Name, cohort.List, cohort.Directory, state, stage,
			a[fleet.Current], a[fleet.Waiting], a[fleet.Refused], a[fleet.Failing], a[fleet.Silent], a[fleet.Observed], reason)
	}
	return w.Flush()
}

func (c *client) agents(ctx context.Context, out io.Writer, query url.Values) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !c.raw {
		fmt.Fprintln(w, "HOST\tCONDITION\tWANTED\tANSWERED\tVERSION\tSEEN\tWHY")
	}
	for {
		var a fleet.Agents
		body, err := c.ask(ctx, http.MethodGet, "/api/v1/agents?"+query.Encode(), &a)
		if err != nil {
			return err
		}
		if c.raw {
			if _, err := out.Write(body); err != nil {
				return err
			}
		} else {
			for i := range a.Agents {
				s := &a.Agents[i]
				host := s.Host
				if host == "" {
					host = s.UID
				}
				why := s.Error
				if why == "" && s.Refused != "" {
					why = fmt.Sprintf("refused %.8s: %s", s.Refused, s.Refusal)
				}
				fmt.Fprintf(w, "%s\t%s\t%.8s\t%.8s\t%s\t%v\t%s\n", host, s.Condition, s.Wanted, s.Answered, s.Version, a.Time.Sub(s.Seen).Truncate(time.Second), why)
			}
		}
		if a.Next == "" {
			return w.Flush()
		}
		query.Set("after", a.Next)
	}
}
