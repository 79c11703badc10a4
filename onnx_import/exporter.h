// Trained weights back into the ONNX file they came from.
#ifndef WEFT_ONNX_IMPORT_EXPORTER_H_
#define WEFT_ONNX_IMPORT_EXPORTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/importer.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"

namespace weft {

// How an exported model is divided into files.
struct ExportOptions {
  // A model whose weights lie in files beside it is written as one file when that stays below this
  // size (an ONNX file ends at 2 GiB), else with one new file beside it. Bytes.
  size_t max_file_bytes = (size_t{1} << 31) - (size_t{1} << 20);
  // What the new file is called, in the folder of the model; the original's is never written to.
  std::string external_name = "weights.data";
};

// Whether an export of the file has one beside it. Reads no payload.
bool HasDataBeside(const ModelFile& file, const ExportOptions& options = {});

// An exported model as bytes, ready to be written.
struct ExportedModel {
  // The ONNX file.
  std::string bytes;
  // The file beside it, in pieces from front to back; none when the model is one file.
  struct Piece {
    int64_t offset = 0;  // a multiple of 4096; bytes between pieces are zero
    Tensor tensor;
  };
  std::string external_name;
  std::vector<Piece> external;
  // "external data of 42 tensors is in the file itself now"; empty when the layout is as it was.
  std::string note;
};

// The input file with the payloads of `trained` (by the names of ImportedModel::parameters)
// replaced and everything else byte for byte as it was: a payload keeps its form (raw or typed
// data). Only external data moves, see ExportOptions: all of it, since the original's files need
// not be where the new model will be. Equal weights give equal bytes.
// InvalidArgument for a name that is no parameter and for another dtype or shape, naming both.
// REQUIRES: tensors on the host.
absl::StatusOr<ExportedModel> ExportTrained(const ImportedModel& model,
                                            const std::map<std::string, Tensor>& trained,
                                            const ExportOptions& options = {});

// Makes the ONNX file that is written from the exported one, whose bytes it gets (not those of the
// file beside it). Its error ends the export before anything is written.
using ExportEdit = std::function<absl::StatusOr<std::string>(std::string_view bytes)>;

// Exports and writes, the file beside it first. Without an `edit` (null) payloads are written from
// where they lie, and little of them is in memory at a time. With one the ONNX file is in memory
// twice, as it was exported and as it was edited; the file beside it is not. `path` is replaced
// atomically; an external file is called like it with ".data" added, or ".1.data" and so on where
// that exists. Returns ExportedModel::note.
absl::StatusOr<std::string> SaveTrained(FileSystem& file_system, const std::string& path,
                                        const ImportedModel& model,
                                        const std::map<std::string, Tensor>& trained,
                                        const ExportEdit& edit = nullptr);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EXPORTER_H_
