#include "tools/signing/signed_set.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/policy/file_verifier.h"
#include "onnx_import/model_file.h"
#include "platform/status_macros.h"
#include "training/checkpoint/checkpoint.h"

namespace weft {
namespace {

std::string IndexPath(const std::string& folder) {
  return absl::StrCat(folder, "/", kCheckpointIndexName);
}

// The file that the signature of `path` lies beside.
std::string MainFile(FileSystem& files, const std::string& path) {
  return files.Exists(IndexPath(path)) ? IndexPath(path) : path;
}

// "a", "b.onnx" of "a/b.onnx".
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

absl::StatusOr<std::vector<SignedFile>> FilesToSign(FileSystem& files, const std::string& path) {
  const std::string main = MainFile(files, path);
  const auto [folder, name] = SplitPath(main);
  std::vector<std::string> others;
  if (main != path) {
    WEFT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(files, path));
    WEFT_RETURN_IF_ERROR(checkpoint.Verify());
    for (const CheckpointFile& file : checkpoint.index().files) others.push_back(file.name);
  } else if (absl::EndsWith(path, ".onnx")) {
    WEFT_ASSIGN_OR_RETURN(const ModelFile model, ModelFile::Load(files, path));
    for (const std::string& location : model.ExternalFiles()) others.push_back(location);
  }
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> first, files.MapFile(main));
  WEFT_ASSIGN_OR_RETURN(const auto manifest, VerifyFile(files, main, first->bytes()));
  std::vector<SignedFile> all = {DescribeSignedFile(name, first->bytes())};
  for (const std::string& other : others) {
    WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file,
                          files.MapFileBeneath(folder, other));
    if (manifest != nullptr) WEFT_RETURN_IF_ERROR(manifest->Check(other, file->bytes()));
    all.push_back(DescribeSignedFile(other, file->bytes()));
  }
  return all;
}

absl::StatusOr<WrittenSignature> SignPath(FileSystem& files, const std::string& path,
                                          const SigningKey& key) {
  WrittenSignature written;
  WEFT_ASSIGN_OR_RETURN(written.files, FilesToSign(files, path));
  WEFT_ASSIGN_OR_RETURN(const std::string text, SignatureText(written.files, key));
  written.path = SignaturePath(MainFile(files, path));
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(written.path, text));
  return written;
}

}  // namespace weft
