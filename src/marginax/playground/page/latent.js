export class LatentView { constructor(){} close(){} show(){} }
