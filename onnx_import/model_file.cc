#include "onnx_import/model_file.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/policy/file_verifier.h"
#include "onnx_import/codec/external_locations.h"
#include "onnx_import/codec/left_payloads.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/operator_check.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// "a/b.onnx" -> "a", "b.onnx" -> ".".
std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

static std::atomic<int64_t>& NodeLimit() {
  static std::atomic<int64_t> limit = ModelFile::kUsualMaxNodes;
  return limit;
}

void ModelFile::SetMaxNodes(int64_t nodes) { NodeLimit() = nodes; }
int64_t ModelFile::MaxNodes() { return NodeLimit(); }

WireLimits ModelFile::UsualLimits() {
  WireLimits limits;
  limits.max_nodes = static_cast<size_t>(MaxNodes());
  return limits;
}

std::set<std::string> ModelFile::ExternalFiles() const { return ExternalLocations(*proto_); }

std::string ModelFile::Label() const { return absl::StrCat("model ", QuotedPath(path_)); }

absl::Status ModelFile::ParseAndValidate(bool leaves_payloads) {
  if (bytes_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        Label(), ": the file is empty, expected an ONNX model; copy or export it again"));
  }
  auto proto = std::make_shared<onnx::ModelProto>();
  absl::Status status;
  if (leaves_payloads) {
    status = ScanWire(bytes_, *proto, limits_);
    if (status.ok()) status = ParseRope(LeavePayloads(bytes_), limits_, *proto);
  } else {
    status = ParseWire(bytes_, limits_, *proto);
  }
  if (status.ok()) status = ValidateModel(*proto);
  proto_ = std::move(proto);
  return Annotate(status, Label());
}

absl::StatusOr<ModelFile> ModelFile::Load(FileSystem& file_system, const std::string& path,
                                          const WireLimits& limits) {
  ModelFile model;
  model.path_ = path;
  model.limits_ = limits;
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, file_system.MapFile(path));
  WEFT_ASSIGN_OR_RETURN(auto manifest, VerifyFile(file_system, path, file->bytes()));
  model.bytes_ = std::string_view(reinterpret_cast<const char*>(file->data()), file->size());
  model.bytes_owner_ = file;
  model.external_ = std::make_shared<ExternalData>(file_system, FolderOf(path));
  model.external_->SetOwnFile(file);
  model.external_->SetManifest(std::move(manifest));
  model.own_name_ = path.substr(path.rfind('/') + 1);
  model.external_->Provide(model.own_name_, file);
  WEFT_RETURN_IF_ERROR(model.ParseAndValidate(/*leaves_payloads=*/true));
  WEFT_RETURN_IF_ERROR(Printable(Annotate(CheckOperators(*model.proto_), model.Label())));
  return model;
}

absl::StatusOr<ModelFile> ModelFile::Parse(std::string bytes, const std::string& label,
                                           const WireLimits& limits) {
  ModelFile model;
  model.path_ = label;
  model.limits_ = limits;
  auto owned = std::make_shared<const std::string>(std::move(bytes));
  model.bytes_ = *owned;
  model.bytes_owner_ = std::move(owned);
  WEFT_RETURN_IF_ERROR(model.ParseAndValidate());
  return model;
}

absl::StatusOr<ModelFile> ModelFile::Edited(ModelFile original, std::string bytes) {
  ModelFile model = std::move(original);
  model.proto_.reset();
  model.is_edited_ = true;
  // Edits of ours may add nodes to a file that was taken.
  model.limits_.max_nodes = WireLimits().max_nodes;
  auto owned = std::make_shared<const std::string>(std::move(bytes));
  model.bytes_ = *owned;
  model.bytes_owner_ = std::move(owned);
  WEFT_RETURN_IF_ERROR(model.ParseAndValidate());
  return model;
}

}  // namespace weft
