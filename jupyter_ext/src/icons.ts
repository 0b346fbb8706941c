/** The icon of the platform: time slices on two nodes. */
import { LabIcon } from '@jupyterlab/ui-components';

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
<g class="jp-icon3" fill="#616161">
<rect x="2" y="4" width="12" height="6" rx="1.5"/><rect x="16" y="4" width="6" height="6" rx="1.5"/>
<rect x="2" y="14" width="6" height="6" rx="1.5"/><rect x="10" y="14" width="12" height="6" rx="1.5"/>
</g></svg>`;

export const haiIcon = new LabIcon({ name: 'hai-jupyter:hai', svgstr: SVG });
