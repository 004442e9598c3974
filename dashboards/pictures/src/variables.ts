import type { Dashboard } from './model';

// scrapeInterval is the one of the Prometheus that is asked, in seconds: what
// Grafana calls the data source's interval.
export const scrapeInterval = 5;

// stepFor is the step of a range query, in seconds: a point a pixel, in the round
// intervals that Grafana has, but never shorter than the scrape interval.
export function stepFor(seconds: number, pixels: number): number {
  const round = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600];
  const wanted = seconds / pixels;
  return Math.max(scrapeInterval, round.find((r) => r >= wanted) ?? round[round.length - 1]);
}

// rateInterval is $__rate_interval.
export function rateInterval(step: number): string {
  return `${Math.max(step + scrapeInterval, 4 * scrapeInterval)}s`;
}

// interpolate fills in variables as Grafana does for Prometheus: all is the
// variable's allValue, or everything.
export function interpolate(expr: string, dashboard: Dashboard, chosen: Record<string, string>, step: number): string {
  return expr.replace(/\$(\w+)/g, (whole, name) => {
    if (name === '__rate_interval') {
      return rateInterval(step);
    }
    if (name === 'step') {
      return `${scrapeInterval}s`;
    }
    const variable = dashboard.templating.list.find((v) => v.name === name);
    return variable === undefined ? whole : (chosen[name] ?? variable.allValue ?? '.*');
  });
}
