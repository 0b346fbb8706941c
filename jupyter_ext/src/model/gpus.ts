/** Says what the driver reports about the GPUs of a rank. */
import { bytes } from './format';

/** As in hai.v1.Gpu. Zeros are left out. */
export interface Gpu {
  index?: number;
  model?: string;
  memory_bytes?: number | string;
  memory_used_bytes?: number | string;
  utilisation?: number;
  temperature?: number;
}

/** Returns `GPU 0 H100 80GB HBM3: 93 %, 61 GiB / 80 GiB, 71 °C`. */
export function gpuText(gpu: Gpu): string {
  const facts = [
    gpu.utilisation === undefined ? '' : `${Math.round(gpu.utilisation * 100)} %`,
    `${bytes(Number(gpu.memory_used_bytes ?? 0))} / ${bytes(Number(gpu.memory_bytes ?? 0))}`,
    gpu.temperature === undefined ? '' : `${gpu.temperature} °C`
  ];
  const model = (gpu.model ?? '').replace('NVIDIA ', '');
  return `${`GPU ${gpu.index ?? 0} ${model}`.trim()}: ${facts.filter(Boolean).join(', ')}`;
}
