// The page of one picture: rows and panels where Grafana's grid of 24 columns has
// them. It says when it is complete in window.complete.

import { createTheme, dateTime, ThemeContext, type TimeRange } from '@grafana/data';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import type { Panel, Picture } from './model';
import { load, type Loaded, PanelOf } from './panel';

const gap = 8; // px, between panels
const unit = 30; // px, the height of a row of the grid
const margin = 16; // px
const head = 44; // px

declare global {
  interface Window {
    complete?: boolean;
  }
}

const theme = createTheme({ colors: { mode: 'dark' } });

function place(p: Panel, picture: Picture) {
  const column = (picture.width - 2 * margin + gap) / 24;
  return {
    left: margin + p.gridPos.x * column,
    top: head + (p.gridPos.y - picture.rows[0]) * (unit + gap),
    width: p.gridPos.w * column - gap,
    height: p.gridPos.h * (unit + gap) - gap,
  };
}

function Head({ picture }: { picture: Picture }) {
  const chosen = picture.dashboard.templating.list.filter((v) => v.type === 'query');
  const minutes = Math.round((picture.to - picture.from) / 60000);
  return (
    <div style={{ height: head, padding: `0 ${margin}px`, display: 'flex', alignItems: 'center', gap: 16, color: theme.colors.text.primary }}>
      <span style={{ fontSize: 18, fontWeight: 500, flexGrow: 1 }}>{picture.dashboard.title}</span>
      {chosen.map((v) => (
        <span key={v.name} style={{ border: `1px solid ${theme.colors.border.medium}`, borderRadius: 2, padding: '3px 8px' }}>
          <span style={{ fontWeight: 500, paddingRight: 8 }}>{v.label}</span>
          {picture.variables[v.name] ?? 'All'}
        </span>
      ))}
      <span style={{ color: theme.colors.text.secondary }}>Last {minutes} minutes, UTC</span>
    </div>
  );
}

function Page({ picture, loaded }: { picture: Picture; loaded: Loaded[] }) {
  const timeRange: TimeRange = {
    from: dateTime(picture.from),
    to: dateTime(picture.to),
    raw: { from: dateTime(picture.from), to: dateTime(picture.to) },
  };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: 'relative', width: picture.width, height: head + (picture.rows[1] - picture.rows[0]) * (unit + gap) + gap }} id="picture">
        <Head picture={picture} />
        {loaded.map((l) => {
          const at = place(l.panel, picture);
          return (
            <div key={l.panel.id} style={{ position: 'absolute', ...at }}>
              {l.panel.type === 'row' ? (
                <div style={{ lineHeight: `${at.height}px`, fontSize: 16, fontWeight: 500 }}>{l.panel.title}</div>
              ) : (
                <PanelOf {...l} picture={picture} timeRange={timeRange} theme={theme} width={at.width} height={at.height} />
              )}
            </div>
          );
        })}
      </div>
      <PortalContainer />
    </ThemeContext.Provider>
  );
}

async function show() {
  const picture: Picture = await (await fetch('/picture.json')).json();
  document.body.style.margin = '0';
  document.body.style.background = theme.colors.background.canvas;
  const shown = picture.dashboard.panels.filter((p) => p.gridPos.y >= picture.rows[0] && p.gridPos.y + p.gridPos.h <= picture.rows[1]);
  const loaded = await Promise.all(shown.map((p) => load(p, picture, theme, place(p, picture).width)));
  await Promise.all([document.fonts.load('400 14px Inter'), document.fonts.load('500 14px Inter')]);
  createRoot(document.getElementById('root')!).render(<Page picture={picture} loaded={loaded} />);
  for (const l of loaded) {
    if (l.panel.type !== 'row') {
      console.log(`${l.frames.length === 0 ? 'empty' : 'drawn'}: ${l.panel.title}`);
    }
  }
  window.complete = true;
}

show().catch((error) => {
  document.body.dataset.failed = `${error.stack}`;
});
