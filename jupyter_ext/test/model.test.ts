/** The model, without a browser: run by `npm test`, and by tests/jupyter/test_front_end.py. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { markedAfterClick, runOnEach } from '../src/model/batch';
import { StateStore } from '../src/model/state_store';
import { columnTexts, showUsage } from '../src/model/columns';
import { Drafts } from '../src/model/drafts';
import { Feed, Socket } from '../src/model/feed';
import { matcher } from '../src/model/filter';
import { EMPTY, areEqual, pairLines, parsePairs, toForm, toTaskFile } from '../src/model/form';
import { gpuText } from '../src/model/gpus';
import { isChinese, translatorFor } from '../src/model/language';
import { Lines, parsePieces, search } from '../src/model/log_lines';
import { fill, notificationFor } from '../src/model/task_notifications';
import { Heartbeat } from '../src/model/heartbeat';
import { lifeBars, runningShare } from '../src/model/timeline';
import { startSentence } from '../src/model/start_prediction';
import { Frame, LogRow, TaskRow } from '../src/model/types';
import { chartOf, rankPages } from '../src/model/usage';
import { rankSilenceText, silenceText } from '../src/model/agent_silence';
import { scrollPositionFor, visibleRows } from '../src/model/visible_rows';
import { stateStyle } from '../src/model/state_style';
import { bytes, clock, durationText, heldSeconds, levelName, runAndRank, span, status, verbs } from '../src/model/format';

function row(id: number, more: Partial<TaskRow> = {}): TaskRow {
  return { id, user: 'alice', name: `task${id}`, nodes: 1, state: 'RUNNING', priority: 10, version: id, ...more };
}

function frame(more: Partial<Frame> = {}): Frame {
  return { tasks: [], nodes: [], version: 0, ...more };
}

test('a store knows who waits for the end of a task', () => {
  const store = new StateStore();
  store.apply(frame({ tasks: [row(1), row(2, { awaited: [1] }), row(3, { awaited: [9, 2, 1] }), row(4)], version: 1 }));
  assert.deepEqual(store.dependents([1]).map(task => task.id), [3, 2]);
  assert.deepEqual(store.dependents([1, 2, 3]).map(task => task.id), []);
});

test('a store is complete once a frame has a version, and lists the newest first', () => {
  const store = new StateStore();
  store.apply(frame({ reset: true, board: 'b', tasks: [row(1), row(3)] }));
  assert.equal(store.complete, false);
  store.apply(frame({ tasks: [row(2)], version: 7 }));
  assert.deepEqual(store.rows.map(task => task.id), [3, 2, 1]);
  assert.deepEqual([store.complete, store.version, store.id], [true, 7, 'b']);
});

test('an older row never replaces a newer one', () => {
  const store = new StateStore();
  store.apply(frame({ tasks: [row(1, { version: 5, name: 'new' })], version: 5 }));
  store.put(row(1, { version: 4, name: 'old' }));
  assert.equal(store.tasks.get(1)?.name, 'new');
});

test('a reset forgets everything, and says nothing of what comes again', () => {
  const store = new StateStore();
  const changed: number[] = [];
  store.watch((_, after) => changed.push(after.id));
  store.apply(frame({ tasks: [row(1)], version: 1 }));
  store.apply(frame({ reset: true, tasks: [row(2)] }));
  assert.deepEqual([[...store.tasks.keys()], changed], [[2], []]);
  store.apply(frame({ version: 2 }));
  store.apply(frame({ tasks: [row(2, { version: 3 })], version: 3 }));
  assert.deepEqual(changed, [2]);
});

test('10 000 tasks are filtered within a frame of a screen', () => {
  const store = new StateStore();
  const tasks = Array.from({ length: 10_000 }, (_, i) => row(i + 1, { tags: [`t${i % 7}`] }));
  store.apply(frame({ tasks, version: 1 }));
  const began = process.cpuUsage();
  const found = store.rows.filter(matcher('user:me tag:t3 -name:*77*', 'alice'));
  const used = process.cpuUsage(began);
  assert.ok(found.length > 1000);
  assert.ok(used.user + used.system < 200_000, `${used.user} µs`);
});

const FILTERS: Array<[string, Partial<TaskRow>, boolean]> = [
  ['', {}, true],
  ['bert', { name: 'Bert large' }, true],
  ['bert large', { name: 'large bert' }, true],
  ['state:running', {}, true],
  ['state:waiting,held', { state: 'WAITING_INIT', held: true }, true],
  ['status:failed', { state: 'FINISHED', outcome: 'FAILED' }, true],
  ['-state:running', {}, false],
  ['user:me', {}, true],
  ['user:bob', {}, false],
  ['tag:a,b', { tags: ['b'] }, true],
  ['name:task*', {}, true],
  ['name:"a b"', { name: 'a b' }, true],
  ['-name:task1', {}, false],
  ['starred:true', { starred: true }, true],
  ['after:3', { awaited: [3, 12] }, true],
  ['after:1', { awaited: [3, 12] }, false],
  ['after:1', {}, false],
  ['id:1', {}, true],
  ['unknown:key', {}, false],
  ['(', { name: 'a(b' }, true],
  ['name:a(*', { name: 'a(b' }, true]
];
for (const [text, more, wanted] of FILTERS) {
  test(`filter ${JSON.stringify(text)} ${wanted ? 'finds' : 'leaves out'} ${JSON.stringify(more)}`, () => {
    assert.equal(matcher(text, 'alice')(row(1, more)), wanted);
  });
}

class FakeSocket implements Socket {
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  closed = false;
  constructor(readonly query: string) {}
  close(): void {
    this.closed = true;
  }
}

function world() {
  const sockets: FakeSocket[] = [];
  const waits: Array<[number, () => void]> = [];
  const polls: Array<{ query: string; resolve: (frame: Frame) => void; reject: (error: Error) => void }> = [];
  const store = new StateStore();
  const feed = new Feed(store, {
    socket: query => {
      const made = new FakeSocket(query);
      sockets.push(made);
      return made;
    },
    poll: query => new Promise((resolve, reject) => polls.push({ query, resolve, reject })),
    later: (seconds, call) => waits.push([seconds, call]),
    cancel: () => undefined
  });
  return { sockets, waits, polls, store, feed };
}

test('a feed that was cut goes on from the version it has seen, with growing pauses', () => {
  const { sockets, waits, feed } = world();
  feed.start();
  sockets[0]!.onopen!({});
  sockets[0]!.onmessage!({ data: JSON.stringify(frame({ board: 'x', version: 9 })) });
  assert.equal(feed.state, 'live');
  sockets[0]!.onclose!({});
  assert.equal(feed.state, 'lost');
  waits[0]![1]();
  assert.equal(sockets[1]!.query, 'board=x&after=9');
  sockets[1]!.onclose!({});
  waits[1]![1]();
  assert.deepEqual(waits.map(([seconds]) => seconds), [0.25, 0.5]);
});

test('where no websocket gets through it asks again and again, and tries sockets now and then', async () => {
  const { sockets, waits, polls, store, feed } = world();
  feed.start();
  for (let i = 0; i < 3; i += 1) {
    sockets[i]!.onclose!({});
    waits[i]?.[1]();
  }
  assert.equal(polls.length, 1);
  polls[0]!.resolve(frame({ tasks: [row(1)], version: 4 }));
  await new Promise(setImmediate);
  assert.deepEqual([feed.state, store.tasks.size], ['polling', 1]);
  waits[waits.length - 1]![1]();
  assert.equal(polls[1]!.query, 'board=&after=4');
  polls[1]!.reject(new Error('gone'));
  await new Promise(setImmediate);
  assert.equal(feed.state, 'lost');
});

test('a connection on which nothing is heard is given up', () => {
  const { sockets, waits, feed } = world();
  feed.start();
  sockets[0]!.onopen!({});
  feed.check();
  feed.check();
  sockets[0]!.onmessage!({ data: JSON.stringify(frame({ board: 'x', version: 9 })) });
  feed.check();
  feed.check();
  assert.deepEqual([feed.state, sockets[0]!.closed], ['live', false]);
  feed.check();
  assert.deepEqual([feed.state, sockets[0]!.closed], ['lost', true]);
  waits[0]![1]();
  assert.equal(sockets[1]!.query, 'board=x&after=9');
});

test('a log that is complete is not asked for again when nothing is heard of it', () => {
  const heartbeat = new Heartbeat();
  let gone = 0;
  const socket: Socket = { onopen: null, onmessage: null, onclose: () => (gone += 1), close: () => undefined };
  for (let i = 0; i < 9; i += 1) {
    heartbeat.check(socket);
  }
  assert.equal(gone, 1);
});

test('a closed feed stays closed', () => {
  const { sockets, waits, feed } = world();
  feed.start();
  feed.close();
  sockets[0]!.onclose!({});
  assert.deepEqual([sockets[0]!.closed, waits.length], [true, 0]);
});

test('only visible rows are drawn', () => {
  assert.deepEqual(visibleRows(0, 400, 40, 10_000, 2), { first: 0, end: 12 });
  assert.deepEqual(visibleRows(4000, 400, 40, 10_000, 2), { first: 98, end: 112 });
  assert.deepEqual(visibleRows(4000, 400, 40, 5), { first: 5, end: 5 });
  assert.equal(scrollPositionFor(3, 200, 400, 40), 120);
  assert.equal(scrollPositionFor(20, 200, 400, 40), 440);
  assert.equal(scrollPositionFor(8, 200, 400, 40), 200);
});

const log = (...texts: Array<[string, boolean?]>): LogRow[] => texts.map(([text, redraw], i) => [1, 0, i, text, redraw ? 1 : 0]);

test('a line that ended with a carriage return is replaced by the next of its rank', () => {
  const lines = new Lines(100);
  lines.add(log(['10 %', true], ['20 %', true], ['done'], ['next']));
  assert.deepEqual(lines.all.map(line => line.text), ['done', 'next']);
  lines.add([[1, 0, 9, 'a', 1], [1, 1, 9, 'other rank', 0], [1, 0, 9, 'b', 0], [2, 0, 9, 'run 2', 0]]);
  assert.deepEqual(lines.all.map(line => line.text), ['done', 'next', 'b', 'other rank', 'run 2']);
  assert.deepEqual(lines.all.map(line => line.startsRun), [true, false, false, false, true]);
});

test('a long log is bounded, and says how much was dropped', () => {
  const lines = new Lines(10);
  lines.add(log(...Array.from({ length: 25 }, (_, i): [string] => [String(i)])));
  assert.deepEqual([lines.all.length, lines.dropped, lines.all[0]!.text], [10, 15, '15']);
  lines.add(log(['x', true], ['y']));
  assert.deepEqual(lines.all.map(line => line.text).slice(-2), ['24', 'y']);
  assert.deepEqual(search(lines.all, 'Y'), [lines.all.length - 1]);
});

test('colours stay, every other escape goes, control characters are seen', () => {
  assert.deepEqual(parsePieces('\x1b[1;31mbad\x1b[0m ok'), [
    { text: 'bad', style: 'bold red' },
    { text: ' ok', style: '' }
  ]);
  const hostile = 'a\x1b]0;title\x07b\x1b[2Jc\x1b[38;5;9md\x00e\x1b';
  assert.equal(parsePieces(hostile).map(piece => piece.text).join(''), 'abcd\ufffde');
  assert.equal(parsePieces('<img src=x onerror=1>')[0]!.text, '<img src=x onerror=1>');
});

test('only ends and suspensions of one’s own tasks are news', () => {
  const running = row(1);
  const failed = row(1, { state: 'FINISHED', outcome: 'FAILED' });
  assert.equal(notificationFor(running, failed, 'alice')?.kind, 'error');
  assert.equal(notificationFor(running, { ...failed, outcome: 'SUCCEEDED' }, 'alice')?.kind, 'success');
  assert.equal(notificationFor(running, failed, 'bob'), null);
  assert.equal(notificationFor(undefined, failed, 'alice'), null);
  assert.equal(notificationFor(failed, failed, 'alice'), null);
  assert.match(notificationFor(running, { ...failed, outcome: 'CANCELED' }, 'alice')!.text, /cancelled: {why}/);
  assert.equal(notificationFor(running, row(1, { state: 'SUSPENDED' }), 'alice')?.kind, 'info');
  assert.equal(notificationFor(running, row(1, { state: 'SUSPENDED', held: true }), 'alice'), null);
  assert.equal(fill('{a} and {b}', { a: 1 }), '1 and {b}');
});

test('states have a word and a mark, and verbs that fit', () => {
  assert.equal(status(row(1, { state: 'WAITING_INIT' })), 'WAITING');
  assert.equal(status(row(1, { run: 'SUSPENDING' })), 'SUSPENDING');
  assert.deepEqual(verbs(row(1)), ['suspend', 'stop']);
  assert.deepEqual(verbs(row(1, { run: 'STOPPING' })), ['stop']);
  assert.deepEqual(verbs(row(1, { state: 'SUSPENDED', held: true })), ['resume', 'stop']);
  assert.deepEqual(verbs(row(1, { state: 'FINISHED', type: 'training' })), ['again']);
  assert.deepEqual(verbs(row(1, { state: 'FINISHED', type: 'jupyter' })), []);
  const marks = ['RUNNING', 'SUCCEEDED', 'FAILED', 'STOPPED', 'WAITING', 'SUSPENDED', 'HELD'].map(state => stateStyle(state).glyph);
  assert.equal(new Set(marks).size, marks.length);
  assert.deepEqual([levelName(30), levelName(-1), levelName(7)], ['HIGH', 'AUTO', '7']);
});

test('spans and sizes are short', () => {
  assert.deepEqual([0, 59, 200, 7500, 270_000].map(span), ['0 s', '59 s', '3 min 20 s', '2 h 5 min', '3 d 3 h']);
  assert.deepEqual([500, 3_650_722_202, 2 ** 20].map(bytes), ['500 B', '3.40 GiB', '1.00 MiB']);
  assert.equal(durationText(row(1, { run_started: 100 }), 160), '1 min');
  assert.equal(durationText(row(1, { state: 'WAITING_INIT', created: 100 }), 107), '7 s');
});

test('a form becomes a task file and comes back from one', () => {
  const form = { ...EMPTY, name: 'n', nodes: 4, tags: 'a, b', variables: 'A=1\n# no\nB= x=y ', timeLimit: '2h' };
  const file = toTaskFile(form);
  assert.deepEqual(file.resource, { node_count: 4, group: 'default', image: null });
  assert.deepEqual(file.spec, { environments: { A: '1', B: 'x=y' } });
  assert.deepEqual(file.options, { py_venv: null, tags: ['a', 'b'], time_limit: '2h', max_retries: null, after: null });
  const back = toForm(file, EMPTY);
  assert.deepEqual(back, { ...form, tags: 'a b', variables: 'A=1\nB=x=y' });
  assert.equal(pairLines(parsePairs('a=1\nb')), 'a=1\nb=');
  assert.deepEqual(toTaskFile({ ...form, variables: 'B=2' }, form).spec, { environments: { A: null, B: '2' } }); // A is gone
});

test('tasks that go first are numbers in the form, with how they have to end', () => {
  const file = toTaskFile({ ...EMPTY, after: '12, #13:ended fit' });
  assert.deepEqual(file.options.after, [{ task: 12 }, { task: 13, outcome: 'ended' }, { task: 'fit' }]);
  assert.equal(toForm(file, EMPTY).after, '12 13:ended fit');
});

test('the life of a task is bars without gaps', () => {
  const time = (s: number) => new Date(s * 1000).toISOString();
  const runs = [
    { number: 1, create_time: time(110), start_time: time(112), end_time: time(150), reason: 'left' },
    { number: 2, create_time: time(170), start_time: time(171) }
  ];
  const found = lifeBars(100, runs, 0, 200);
  assert.deepEqual(
    found.map(bar => [bar.kind, bar.from, bar.to]),
    [
      ['waiting', 100, 110],
      ['starting', 110, 112],
      ['running', 112, 150],
      ['waiting', 150, 170],
      ['starting', 170, 171],
      ['running', 171, 200]
    ]
  );
  assert.equal(runningShare(found), 0.67);
  assert.deepEqual(lifeBars(100, [], 0, 100), []);
});

test('use is drawn as bars between start and end, as high as its share of the most', () => {
  const points = [
    [100, 2, null],
    [160, 4, 0.5]
  ];
  const drawn = chartOf(points, 1, 100, 220, 60)!;
  assert.deepEqual(drawn.bars.map(bar => [bar.left, bar.width, bar.height]), [[0, 0.5, 0.5], [0.5, 0.5, 1]]);
  assert.deepEqual([drawn.last, drawn.mean], [4, 3]);
  assert.deepEqual(chartOf(points, 2, 100, 220, 60, 1)!.bars.map(bar => [bar.time, bar.height]), [[160, 0.5]]);
  assert.equal(chartOf(points, 3, 100, 220, 60), null);
  assert.deepEqual(chartOf([[100, 0]], 1, 100, 100, 60)!.bars.map(bar => bar.height), [0]);
});

test('nodes are held over all runs and in the one that runs', () => {
  assert.equal(heldSeconds(row(1, { run_seconds: 20, run_started: 100 }), 130), 50);
  assert.equal(heldSeconds(row(1, { run_seconds: 20, run_started: 100, state: 'FINISHED' }), 130), 20);
  assert.equal(heldSeconds(row(1, { state: 'WAITING_INIT' }), 130), 0);
});

test('ranks are shown eight at a time', () => {
  assert.deepEqual(rankPages(17, 8), [[0, 7], [8, 15], [16, 16]]);
  assert.deepEqual(rankPages(8, 8), [[0, 7]]);
});

test('what is done with many has a result for each, a few at a time', async () => {
  let now = 0;
  let most = 0;
  const work = async (n: number) => {
    most = Math.max(most, ++now);
    await Promise.resolve();
    now -= 1;
    if (n === 3) {
      throw new Error('refused');
    }
  };
  const found = await runOnEach([1, 2, 3, 4, 5], work, 2);
  assert.deepEqual(found.map(one => [one.item, one.error?.message]), [[1, undefined], [2, undefined], [3, 'refused'], [4, undefined], [5, undefined]]);
  assert.equal(most, 2);
  assert.deepEqual(await runOnEach([], work), []);
});

test('tasks are marked one by one or in a row', () => {
  const all = [9, 7, 5, 3];
  assert.deepEqual([...markedAfterClick(all, new Set([9]), 9, 5, 'add')], [9, 5]);
  assert.deepEqual([...markedAfterClick(all, new Set([9, 5]), 9, 5, 'add')], [9]);
  assert.deepEqual([...markedAfterClick(all, new Set(), 3, 7, 'range')], [7, 5, 3]);
  assert.deepEqual([...markedAfterClick(all, new Set(), 0, 7, 'range')], [7]);
});

test('a store knows which front end the server gives out', () => {
  const store = new StateStore();
  store.apply(frame({ build: 'a' }));
  store.apply(frame({}));
  assert.equal(store.build, 'a');
});

test('a language is a table; what it lacks stays English', () => {
  const translate = translatorFor({ Stop: '停止' });
  assert.deepEqual([translate('Stop'), translate('Go {n}', { n: 1 })], ['停止', 'Go 1']);
  assert.deepEqual(['zh_CN', 'zh-TW', 'en'].map(isChinese), [true, true, false]);
});

test('a name that others have given turns nothing of a sentence around', () => {
  const translate = translatorFor({});
  const name = 'x\u202e <img src=x onerror=1> \u2069\u001b[31m{id}$&';
  assert.equal(translate('Task {id} {name} was stopped', { id: 1, name }), 'Task 1 x <img src=x onerror=1> [31m{id}$& was stopped');
  assert.equal(translate('{name}', { name: 'שלום\nשלום' }), 'שלום\nשלום');
});

test('a predicted start is told as far as it is known, or why it is not', () => {
  const translate = translatorFor({});
  const [p10, p50, p90] = ['2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z', '2026-01-03T00:00:00Z'];
  const [from, when, to] = [p10, p50, p90].map(moment => new Date(moment).toLocaleString());
  assert.equal(startSentence(translate, { p10, p50, p90 }), `It will probably start at ${when} (between ${from} and ${to}).`);
  assert.equal(startSentence(translate, { p10, p50 }), `It will probably start at ${when}, or much later (not before ${from}).`);
  assert.equal(startSentence(translate, { p10 }), `It will probably not start before ${from}.`);
  assert.equal(startSentence(translate, { reason: 'history is thin' }), 'No predicted start: history is thin.');
  assert.equal(startSentence(translate, {}), '');
});

test('a begun form is kept until it is handed in, and never one of another file', () => {
  const saved: unknown[] = [];
  const drafts = new Drafts(kept => saved.push(JSON.parse(JSON.stringify(kept))));
  const form = { ...EMPTY, tags: 'x' };
  drafts.put('a.py', null);
  assert.equal(saved.length, 0);
  drafts.put('a.py', { form, text: null });
  assert.deepEqual([drafts.get('a.py')?.form.tags, drafts.get('b.py')], ['x', null]);
  const later = new Drafts(() => undefined);
  later.addSaved(saved[0]);
  assert.equal(later.get('a.py')?.form.tags, 'x');
  drafts.put('a.py', null);
  assert.deepEqual(saved[1], []);
});

test('what Lab kept and is none of ours is left out, and does not replace what was typed since', () => {
  const drafts = new Drafts(() => undefined);
  drafts.put('a', { form: EMPTY, text: 'new' });
  for (const kept of [null, 7, 'x', [1, ['b'], ['c', null], ['a', { form: EMPTY, text: 'old' }], ['d', { form: EMPTY, text: 'd' }]]]) {
    drafts.addSaved(kept);
  }
  assert.deepEqual(['a', 'b', 'c', 'd'].map(key => drafts.get(key)?.text), ['new', undefined, undefined, 'd']);
});

test('the newest drafts are kept, as many as fit', () => {
  const drafts = new Drafts(() => undefined, 1000);
  for (let i = 0; i < 20; i += 1) {
    drafts.put(`f${i}`, { form: EMPTY, text: 'x'.repeat(100) });
  }
  const kept = Array.from({ length: 20 }, (_, i) => drafts.get(`f${i}`) !== null);
  assert.deepEqual([kept[19], kept[18], kept[0]], [true, true, false]);
});

test('forms are the same when nothing in them differs', () => {
  assert.equal(areEqual(EMPTY, { ...EMPTY }), true);
  assert.equal(areEqual(EMPTY, { ...EMPTY, nodes: 2 }), false);
});

test('columns say what is known, and only what uses something has to be asked for', () => {
  const task = row(1, { tags: ['a', 'b'], runs: 2 });
  assert.equal(columnTexts(['tags', 'runs', 'cpu', 'gpu', 'nonsense'], task, [0, 1.25, 1024, null, null]), '1.3 CPU · a b · ×2');
  assert.equal(columnTexts(['cpu', 'memory'], task, undefined), '');
  assert.deepEqual([showUsage(['tags']), showUsage(['tags', 'memory'])], [false, true]);
});

interface SilenceCase {
  ranks: number[];
  rank_count: number;
  seconds: number;
  english: string;
}

test('the sentence about silent agents is that of the command line', () => {
  const translate = translatorFor({});
  const cases: SilenceCase[] = JSON.parse(readFileSync('../tests/testdata/silence.json', 'utf8'));
  for (const each of cases) {
    const silent = { count: each.ranks.length, rank: each.ranks[0]!, of: each.rank_count, since: 1000 };
    assert.equal(silenceText(translate, silent, 1000 + each.seconds), each.english);
  }
});

test('a rank that was last heard at a time is silent since then, others are not', () => {
  const translate = translatorFor({});
  const heard = '2026-01-31T12:00:00Z';
  assert.equal(rankSilenceText(translate, heard, Date.parse(heard) / 1000 + 40), 'agent silent for 40 s');
  assert.equal(rankSilenceText(translate, undefined, 0), '');
});

test('a time of another day has its day', () => {
  const now = new Date(2026, 10, 23, 12);
  assert.equal(clock(new Date(2026, 10, 23, 1), now), new Date(2026, 10, 23, 1).toLocaleTimeString());
  assert.equal(clock(new Date(2026, 10, 22, 12), now), new Date(2026, 10, 22, 12).toLocaleString());
});

test('an event is of its run or its rank, also of the first', () => {
  assert.deepEqual([runAndRank(), runAndRank(2, -1), runAndRank(2), runAndRank(2, 1)], ['', '2', '2.0', '2.1']);
});

test('a GPU is one line', () => {
  const memory = { memory_bytes: String(80 * 2 ** 30), memory_used_bytes: String(61 * 2 ** 30) };
  const whole = { index: 1, model: 'NVIDIA H100 80GB HBM3', ...memory, utilisation: 0.93, temperature: 71 };
  assert.equal(gpuText(whole), 'GPU 1 H100 80GB HBM3: 93 %, 61.0 GiB / 80.0 GiB, 71 °C');
  assert.equal(gpuText({ ...memory, utilisation: 0 }), 'GPU 0: 0 %, 61.0 GiB / 80.0 GiB');
});
