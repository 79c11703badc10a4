// Folders of images, one subfolder for each class.
#ifndef WEFT_TRAINING_DATA_IMAGE_FOLDER_H_
#define WEFT_TRAINING_DATA_IMAGE_FOLDER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "training/data/data_column.h"

namespace weft {

// How a folder of images is read.
struct ImageFolderOptions {
  std::vector<int64_t>
      image_shape;  // [C,H,W]: images of other sizes are scaled; empty: as the first
  std::vector<std::string> classes;  // by number; empty: the subfolders, sorted
};

// FOLDER/CLASS/NAME.png and the like, by class and name; names that begin with a dot and files of
// other kinds are passed over. `labels`: int64 class numbers; else uint8 [C,H,W], decoded when they
// are read. A folder of images alone has no labels. `files` outlives the column. InvalidArgument
// when there is no image, or a class that `classes` has not.
absl::StatusOr<std::unique_ptr<DataColumn>> OpenImageFolder(FileSystem& files,
                                                            const std::string& folder, bool labels,
                                                            const ImageFolderOptions& options);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_IMAGE_FOLDER_H_
