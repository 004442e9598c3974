// Which part of which dashboard is a picture, with what chosen.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { dashboard12239 } from './dashboard12239';
import type { Dashboard, Picture } from './model';

export function pictures(dir: string, from: number, to: number): Picture[] {
  const ours = (name: string): Dashboard => JSON.parse(readFileSync(join(dir, `${name}.json`), 'utf8'));
  const picture = (file: string, dashboard: Dashboard, variables: Record<string, string>, rows: [number, number]): Picture => ({
    file,
    dashboard,
    variables,
    rows,
    from,
    to,
    width: 1500,
  });
  return [
    picture('fleet', ours('fleet'), {}, [0, 52]),
    picture('node', ours('node'), { instance: 'dgx-1' }, [0, 34]),
    picture('gpu', ours('gpu'), { instance: 'dgx-1', gpu: '6' }, [0, 38]),
    picture('gpu-amd', ours('gpu'), { instance: 'mi300x-1', gpu: '0' }, [19, 86]),
    picture('workloads', ours('workloads'), {}, [0, 57]),
    picture('exporter', ours('exporter'), {}, [0, 43]),
    picture('12239', dashboard12239, { instance: 'dgx-1' }, [0, 32]),
  ];
}
