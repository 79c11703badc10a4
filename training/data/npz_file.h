// NpzFile: the arrays of an .npz file, which is a zip archive of .npy files.
#ifndef WEFT_TRAINING_DATA_NPZ_FILE_H_
#define WEFT_TRAINING_DATA_NPZ_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "training/data/zip_archive.h"

namespace weft {

// As numpy.savez and savez_compressed write them. Keeps the file mapped; arrays are read when they
// are asked for.
class NpzFile {
 public:
  // What FileSystem says; DataLoss for a damaged file, InvalidArgument for what is no archive.
  static absl::StatusOr<NpzFile> Open(FileSystem& files, const std::string& path);

  // In the order of the archive, without ".npy".
  std::vector<std::string> ArrayNames() const;
  bool Has(const std::string& array) const;

  // The array of that name, with or without ".npy"; of an empty name, the only array there is.
  // NotFound or InvalidArgument, listing what there is; DataLoss for damage.
  absl::StatusOr<Tensor> Read(const std::string& array) const;

 private:
  NpzFile(std::shared_ptr<const MappedFile> file, std::string path, ZipArchive archive)
      : file_(std::move(file)), path_(std::move(path)), archive_(std::move(archive)) {}

  std::shared_ptr<const MappedFile> file_;
  std::string path_;
  ZipArchive archive_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_NPZ_FILE_H_
