// ModelFile: an ONNX file, read, checked and kept.
#ifndef WEFT_ONNX_IMPORT_MODEL_FILE_H_
#define WEFT_ONNX_IMPORT_MODEL_FILE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/codec/external_data.h"
#include "onnx_import/codec/wire_scan.h"
#include "platform/file_system.h"

namespace weft {

namespace onnx {
class ModelProto;
}

// The bytes of a model and their decoded form. Everything in it was checked that can be checked
// without knowing operators: the encoding, names, types, attributes, versions (model_validator.h).
// References between nodes and payloads of tensors are checked when a graph is made of it.
// Copies share the contents. Immutable, but `external()` is not thread-safe.
class ModelFile {
 public:
  ModelFile() = default;  // of no file, to assign to

  // Nodes that a file may have, its functions inlined or not. Of the process; set it before the
  // first model is read and before other threads run.
  static constexpr int64_t kUsualMaxNodes = 100'000;
  static void SetMaxNodes(int64_t nodes);
  static int64_t MaxNodes();
  // What a file may ask for, by default.
  static WireLimits UsualLimits();

  // Maps and checks a file. Weights stay in it until they are read, in the file itself as beside it
  // (codec/left_payloads.h). The file system is borrowed for as long as the model or a tensor of it
  // lives. Errors are one paragraph that names the file; codes: what FileSystem says (NotFound,
  // ...), InvalidArgument, ResourceExhausted; PermissionDenied for an operator that the process's
  // policy does not allow (codec/operator_check.h), and for files, beside it too, that the
  // process's verifier does not answer for (graph/policy/file_verifier.h).
  static absl::StatusOr<ModelFile> Load(FileSystem& file_system, const std::string& path,
                                        const WireLimits& limits = UsualLimits());
  // The same for bytes in memory; `label` stands for the path in messages. Such a model can have no
  // external data.
  static absl::StatusOr<ModelFile> Parse(std::string bytes, const std::string& label,
                                         const WireLimits& limits = UsualLimits());
  // `original` with other bytes, checked as any: path and external data stay. A tensor of `bytes`
  // may have its payload in `original`: external data with the location original.own_name() is read
  // there. Move the original in, and its decoded form is gone before the new one is made.
  static absl::StatusOr<ModelFile> Edited(ModelFile original, std::string bytes);

  const std::string& path() const { return path_; }
  // "model 'PATH'", for messages.
  std::string Label() const;
  std::string_view bytes() const { return bytes_; }
  // Lives as long as any copy of the pointer.
  const std::shared_ptr<const onnx::ModelProto>& proto() const { return proto_; }
  // Null for models in memory.
  ExternalData* external() const { return external_.get(); }
  // The files beside it that its tensors say they are in, relative to its folder.
  std::set<std::string> ExternalFiles() const;
  // What an edited file calls the file that it was made of; "" for models in memory. It has no file
  // of that name beside it: an exporter puts such payloads back into the file.
  const std::string& own_name() const { return own_name_; }
  // Whether it was made by Edited.
  bool is_edited() const { return is_edited_; }

 private:
  // `leaves_payloads`: large ones stay in `bytes_`, which `external_` has as its own file.
  absl::Status ParseAndValidate(bool leaves_payloads = false);

  std::string path_;
  WireLimits limits_;  // of the file, and of what is made of it
  std::string own_name_;
  bool is_edited_ = false;
  std::shared_ptr<const void> bytes_owner_;
  std::string_view bytes_;
  std::shared_ptr<const onnx::ModelProto> proto_;
  std::shared_ptr<ExternalData> external_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_MODEL_FILE_H_
