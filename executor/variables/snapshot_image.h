// SnapshotImage: the variables of a rank as one run of bytes, which says itself what lies in it.
#ifndef WEFT_EXECUTOR_VARIABLES_SNAPSHOT_IMAGE_H_
#define WEFT_EXECUTOR_VARIABLES_SNAPSHOT_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "tensor/shape.h"

namespace weft {

// A rank's part of a variable, and where its bytes lie in an image.
struct SnapshotEntry {
  VariableShard shard;  // `is_primary` is not kept: true
  int64_t offset = 0;
  int64_t bytes() const { return DTypeBytes(shard.dtype, shard.local_shape.num_elements()); }
};

// An image: eight bytes, little-endian, the length of the header; the header, JSON, with dtype,
// shape and cut of each variable, spaces at its end; then the variables in the header's order, each
// at a multiple of 64 bytes.
struct SnapshotLayout {
  std::string header;  // with its length before it: the begin of the image
  std::vector<SnapshotEntry> entries;
  int64_t bytes = 0;  // of the whole image
};

// A longer header is refused: some hundred thousand variables fit.
inline constexpr int64_t kMaxSnapshotHeaderBytes = int64_t{16} << 20;
// So long is the length before the header.
inline constexpr int64_t kSnapshotLengthBytes = 8;

// Where these parts lie, by name. Depends on them alone: equal on every machine.
SnapshotLayout LayOutSnapshot(std::vector<VariableShard> shards);

// How many bytes the header has, its length counted, of an image of `image_bytes` that begins with
// these. DataLoss naming `name`: fewer than kSnapshotLengthBytes, or more than an image may have.
absl::StatusOr<int64_t> SnapshotHeaderBytes(std::span<const std::byte> begin, int64_t image_bytes,
                                            const std::string& name);
// Reads and checks the header, which nobody needs to trust. DataLoss naming `name`, the variable
// and what is wrong.
absl::StatusOr<SnapshotLayout> ParseSnapshot(std::span<const std::byte> header, int64_t image_bytes,
                                             const std::string& name);

// The shape of the part that the cut of `shard` (its sharding, shards and rows) leaves of its
// global shape. InvalidArgument for a cut that the variable does not allow.
absl::StatusOr<Shape> ShapeOfCut(const VariableShard& shard);

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLES_SNAPSHOT_IMAGE_H_
