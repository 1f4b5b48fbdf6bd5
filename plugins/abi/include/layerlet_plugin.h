/* The C ABI of native backend plugins of Layerlet, version 1.
 *
 * A plugin is a shared library that exports one function, layerlet_plugin(). What it returns lives as long
 * as the library. The fields `abi`, `plan_format` and `target` stay where they are in every version: a
 * host reads them first and refuses what it was not built for.
 *
 * Rules:
 * - Every function but the destructors returns a status. Anything but LAYERLET_OK comes with a message:
 *   the plugin calls `sink.take` once, with UTF-8, before it returns.
 * - Bytes that the host passes are the plugin's for the time of the call only, and the other way round.
 * - A handle is used by one thread at a time; backends may be used by several.
 * - After LAYERLET_FAILED an instance refuses everything; after LAYERLET_REFUSED nothing has changed.
 * - Plans, buffer tables and capabilities are bytes in the encoding of layerlet-core, each with its version.
 */
#ifndef LAYERLET_PLUGIN_H
#define LAYERLET_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define LAYERLET_ABI 1u

#define LAYERLET_OK 0
#define LAYERLET_REFUSED 1 /* the input cannot be used */
#define LAYERLET_FAILED 2  /* the device or the plugin is broken */

typedef struct layerlet_bytes {
  const uint8_t *data;
  size_t len;
} layerlet_bytes;

/* Takes bytes that the other side gives: messages, capabilities. */
typedef struct layerlet_sink {
  void *context;
  void (*take)(void *context, layerlet_bytes bytes);
} layerlet_sink;

#define LAYERLET_OF_MODEL 0u /* weights and state; `plan` means nothing */
#define LAYERLET_OF_PLAN 1u  /* step data, scratch, outputs of one plan */

/* Which memory a buffer's number counts in. */
typedef struct layerlet_place {
  uint32_t owner;
  uint32_t plan;
  uint32_t buffer;
} layerlet_place;

typedef struct layerlet_backend layerlet_backend;
typedef struct layerlet_instance layerlet_instance;

typedef struct layerlet_plugin_v1 {
  uint32_t abi;          /* LAYERLET_ABI */
  uint32_t plan_format;  /* version of the plan encoding that it reads */
  layerlet_bytes target; /* target triple that it was built for */

  /* Makes a backend. `options` is text, one `name=value` a line; an unknown name is refused. */
  int32_t (*create)(layerlet_bytes options, layerlet_backend **backend, layerlet_sink error);
  void (*destroy)(layerlet_backend *backend);

  /* Gives the encoded capabilities: identity and fused kernels. */
  int32_t (*capabilities)(const layerlet_backend *backend, layerlet_sink out, layerlet_sink error);

  /* Takes memory for a model's buffers; state starts as zeros. An instance may outlive its backend. */
  int32_t (*open)(const layerlet_backend *backend, layerlet_bytes table, layerlet_instance **instance,
                  layerlet_sink error);
  void (*close)(layerlet_instance *instance);

  int32_t (*write)(layerlet_instance *instance, layerlet_place place, size_t offset, layerlet_bytes bytes,
                   layerlet_sink error);
  int32_t (*read)(layerlet_instance *instance, layerlet_place place, size_t offset, uint8_t *bytes,
                  size_t len, layerlet_sink error);

  /* Compiles, packs, records an encoded plan; weights must have been written. */
  int32_t (*prepare)(layerlet_instance *instance, layerlet_bytes plan, uint32_t *id, layerlet_sink error);

  /* Runs launches `first` up to `end` (SIZE_MAX: to the last). */
  int32_t (*run)(layerlet_instance *instance, uint32_t plan, size_t first, size_t end, layerlet_sink error);

  /* Fills scratch and outputs of a plan with one byte. */
  int32_t (*poison)(layerlet_instance *instance, uint32_t plan, uint8_t byte, layerlet_sink error);
} layerlet_plugin_v1;

const layerlet_plugin_v1 *layerlet_plugin(void);

#endif
