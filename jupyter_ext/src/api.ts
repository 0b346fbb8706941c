/** Sends all requests to the server extension. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { Socket, StreamEnvironment } from './model/feed';
import { Artifact, Check, Container, Draft, Environment, Group, Me, Message, Script, Series, Submission, Sync, Workspace } from './model/api_types';
import { Failure, Frame, TaskRow } from './model/types';
import { Point } from './model/usage';

const SPACE = 'hai_jupyter';

/** What the server extension answered instead of a result. */
export class ApiError extends Error implements Failure {
  constructor(
    readonly reason: string,
    message: string,
    readonly hint = '',
    readonly violations: Failure['violations'] = []
  ) {
    super(message);
  }
}

/** Verbs of the server extension; base URL, XSRF cookie and Jupyter's own token are ServerConnection's business. */
export class Api {
  constructor(private settings: ServerConnection.ISettings) {}

  me = () => this.get<Me>('me');
  groups = () => this.get<Group[]>('groups');
  messages = () => this.get<Message[]>('messages');
  environments = () => this.get<Environment[]>('environments');
  workspaces = () => this.get<Workspace[]>('workspaces');
  memory = () => this.get<{ used: number; limit: number; of: string }>('memory');
  task = (id: number) => this.get<any>(`tasks/${id}`);
  /** Where the manual is, with {page} for the name of a page. */
  manual = () => this.get<{ url: string }>('manual');
  /** What tasks use just now. */
  uses = (ids: readonly number[]) => this.get<Record<string, Point>>(`usage?ids=${ids.join(',')}`);
  /** A line for a terminal that makes an environment, or gives one a kernel. */
  environmentCommand = (spec: object) => this.post<{ command: string }>('environments/command', spec);
  /** Look at the health of these nodes. */
  checkNodes = (nodes: string[], group: string) => this.post<TaskRow>('nodes/check', { nodes, group });
  artifacts = () => this.get<Artifact[]>('artifacts');
  /** Bring the executed notebook here from the task's own directory. */
  executed = (id: number) => this.post<{ path: string }>(`tasks/${id}/executed`, {});
  usage = (id: number, first: number) => this.get<Series>(`tasks/${id}/usage?first=${first}`);
  /** The status of the workspace of a folder; without a name: the folder is in none. */
  workspace = (path: string) => this.get<Sync>(`workspace?path=${encodeURIComponent(path)}`);
  sync = (path: string, verb: string) => this.post<Sync>(`workspace/${verb}`, { path });
  container = (id: number) => this.get<Container>(`containers/${id}`);
  createContainer = (spec: object) => this.post<TaskRow>('containers', spec);
  openContainer = (id: number, service: string) => this.post<{ link: string }>(`containers/${id}/open`, { service });
  renewContainer = (id: number) => this.post<Container>(`containers/${id}/renew`, {});
  deleteContainer = (id: number) => this.request<object>(`containers/${id}`, { method: 'DELETE' });
  script = (spec: { path: string; specials?: string; clash?: string }) => this.post<Script>('notebook/script', spec);
  clear = (path: string) => this.post<{ copy: string; before: number; after: number }>('notebook/clear', { path });
  /** Everything that was open is saved. */
  saved = () => this.post<object>('saved', {});
  check = (wanted: Submission) => this.post<Check>('check', wanted);
  submit = (wanted: Submission) => this.post<TaskRow>('submit', wanted);

  draft(path: string, cells: boolean): Promise<Draft> {
    return this.get<Draft>(`draft?path=${encodeURIComponent(path)}${cells ? '&cells=1' : ''}`);
  }

  service(id: number, service: string, action: string): Promise<Container> {
    return this.post<Container>(`containers/${id}/services/${service}/${action}`, {});
  }

  verb(id: number, verb: string, body: Record<string, unknown> = {}): Promise<TaskRow> {
    return this.post<TaskRow>(`tasks/${id}/${verb}`, body);
  }

  /** Where the whole log of a task can be downloaded. */
  logFile(id: number): string {
    return URLExt.join(this.settings.baseUrl, SPACE, `tasks/${id}/log.txt`);
  }

  /** A websocket to one of the live handlers. */
  socket(path: string): WebSocket {
    let url = URLExt.join(this.settings.wsUrl, SPACE, path);
    if (this.settings.appendToken && this.settings.token) {
      url += `${url.includes('?') ? '&' : '?'}token=${encodeURIComponent(this.settings.token)}`;
    }
    return new this.settings.WebSocket(url) as WebSocket;
  }

  /** What a feed needs of the world. */
  environment(): StreamEnvironment {
    return {
      socket: query => this.socket(`events?${query}`) as unknown as Socket,
      poll: query => this.get<Frame>(`state?${query}`),
      later: (seconds, call) => window.setTimeout(call, seconds * 1000),
      cancel: timer => window.clearTimeout(timer)
    };
  }

  private get<T>(path: string): Promise<T> {
    return this.request<T>(path, { method: 'GET' });
  }

  private post<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>(path, { method: 'POST', body: JSON.stringify(body) });
  }

  private async request<T>(path: string, init: RequestInit): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, SPACE, path);
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this.settings);
    } catch (error) {
      throw new ApiError('JUPYTER_UNREACHABLE', `the Jupyter server does not answer: ${error}`);
    }
    const data = await response.json().catch(() => ({}));
    if (!response.ok) {
      const message = data.message ?? `${response.status} ${response.statusText}`;
      throw new ApiError(data.reason ?? 'HTTP', message, data.hint, data.violations);
    }
    return data as T;
  }
}
