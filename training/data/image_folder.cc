#include "training/data/image_folder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "training/data/image_decoder.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr std::array<const char*, 10> kImageEndings = {".png", ".jpg", ".jpeg", ".bmp",  ".ppm",
                                                       ".pgm", ".tif", ".tiff", ".webp", ".jp2"};

bool IsImageName(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return lower[0] != '.' &&
         std::any_of(kImageEndings.begin(), kImageEndings.end(),
                     [&](const char* ending) { return absl::EndsWith(lower, ending); });
}

struct Listing {
  std::vector<std::string> paths;  // relative to the folder
  std::vector<int64_t> labels;
  std::vector<std::string> classes;
  bool has_classes = false;
};

absl::Status ListClass(FileSystem& files, const std::string& folder, const std::string& name,
                       Listing& listing) {
  // A file beside the class folders is no folder to list.
  const auto names = files.ListDirectory(absl::StrCat(folder, "/", name));
  if (!names.ok()) return absl::OkStatus();
  const auto known = std::find(listing.classes.begin(), listing.classes.end(), name);
  if (known == listing.classes.end()) {
    return UnreadableData(folder, absl::StrCat("the class '", name, "' is not among the ",
                                               listing.classes.size(), " of --classes"));
  }
  for (const std::string& image : *names) {
    if (!IsImageName(image)) continue;
    listing.paths.push_back(absl::StrCat(name, "/", image));
    listing.labels.push_back(known - listing.classes.begin());
  }
  return absl::OkStatus();
}

absl::StatusOr<Listing> ListImages(FileSystem& files, const std::string& folder,
                                   const std::vector<std::string>& classes) {
  Listing listing;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(folder));
  for (const std::string& name : names) {
    if (IsImageName(name)) listing.paths.push_back(name);
  }
  if (!listing.paths.empty()) return listing;
  listing.has_classes = true;
  listing.classes = classes;
  for (const std::string& name : names) {
    const bool is_folder = name[0] != '.' && files.ListDirectory(folder + "/" + name).ok();
    if (is_folder && classes.empty()) listing.classes.push_back(name);
  }
  for (const std::string& name : names) {
    if (name[0] == '.') continue;
    WEFT_RETURN_IF_ERROR(ListClass(files, folder, name, listing));
  }
  if (!listing.paths.empty()) return listing;
  return UnreadableData(folder, "there is no image in it; expected FOLDER/CLASS/NAME.png or .jpg");
}

std::string_view FileText(const MappedFile& file) {
  return {static_cast<const char*>(static_cast<const void*>(file.data())), file.size()};
}

class ImageColumn final : public DataColumn {
 public:
  ImageColumn(ColumnInfo info, FileSystem& files, std::string folder,
              std::vector<std::string> paths, bool scale)
      : DataColumn(std::move(info)),
        files_(files),
        folder_(std::move(folder)),
        paths_(std::move(paths)),
        scale_(scale) {}

  absl::Status Read(int64_t row, void* target) const override {
    const std::string path = absl::StrCat(folder_, "/", paths_[static_cast<size_t>(row)]);
    WEFT_ASSIGN_OR_RETURN(const auto file, files_.MapFile(path));
    return DecodeImage(FileText(*file), sample_shape(), scale_, path,
                       static_cast<uint8_t*>(target));
  }

 private:
  FileSystem& files_;
  const std::string folder_;
  const std::vector<std::string> paths_;
  const bool scale_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataColumn>> OpenImageFolder(FileSystem& files,
                                                            const std::string& folder, bool labels,
                                                            const ImageFolderOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Listing listing, ListImages(files, folder, options.classes));
  ColumnInfo info;
  info.source = folder;
  info.class_names = listing.classes;
  if (labels) {
    if (!listing.has_classes) {
      return UnreadableData(folder, "its images lie in no class folders, which the labels are");
    }
    info.is_amount = false;
    const auto count = static_cast<int64_t>(listing.labels.size());
    return NewTensorColumn(std::move(info), Tensor::Of<int64_t>(Shape{count}, listing.labels));
  }
  info.class_names.clear();
  info.samples = static_cast<int64_t>(listing.paths.size());
  info.dtype = DType::kUint8;
  const bool scale = !options.image_shape.empty();
  if (scale) {
    info.sample_shape = Shape(options.image_shape);
  } else {
    const std::string first = absl::StrCat(folder, "/", listing.paths[0]);
    WEFT_ASSIGN_OR_RETURN(const auto file, files.MapFile(first));
    WEFT_ASSIGN_OR_RETURN(info.sample_shape, ReadImageShape(FileText(*file), first));
  }
  const std::string names = absl::StrJoin(listing.paths, "\n");
  info.checksum = Checksum(std::as_bytes(std::span<const char>(names)));
  info.is_work = true;
  for (const std::string& path : listing.paths) {
    info.held_bytes += static_cast<int64_t>(sizeof(path) + path.capacity());
  }
  return std::unique_ptr<DataColumn>(std::make_unique<ImageColumn>(
      std::move(info), files, folder, std::move(listing.paths), scale));
}

}  // namespace weft
